"""Load rows that replace the table's rows of the same keys: matched exactly, committed once."""
