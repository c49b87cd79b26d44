"""Load files into a table, checked before a byte is written, committed once."""
