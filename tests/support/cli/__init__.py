"""`lake` as tests call it: in this process, or in processes that run several commands."""
