"""`lake compact`: rewrite data files without changing a row."""
