"""`lake ingest --upsert`: load rows that replace the table's rows of the same keys."""
