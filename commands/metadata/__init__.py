"""Verbs that read or change a table's metadata only."""
