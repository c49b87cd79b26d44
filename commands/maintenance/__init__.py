"""Verbs that maintain a table: they rewrite, remove or commit what is already there."""
