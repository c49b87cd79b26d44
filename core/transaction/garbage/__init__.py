"""Files that no snapshot references: find them, and delete those that belong to the table."""
