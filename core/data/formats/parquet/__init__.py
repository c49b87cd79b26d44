"""Parquet data files: footers, row groups, readers and writers."""
