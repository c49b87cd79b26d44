"""Upserts: load rows that replace the table's rows with the same keys."""
