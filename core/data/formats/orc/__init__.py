"""ORC data files: tails, types, readers and writers."""
