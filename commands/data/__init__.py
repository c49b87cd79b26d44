"""Verbs that read a table's rows or add rows to it."""
