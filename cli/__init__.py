"""The terminal interface: the only package that uses Rich, standard output and exit codes."""
