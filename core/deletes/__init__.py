"""Rows that a table no longer has: delete files read, applied and written."""
