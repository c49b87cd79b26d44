"""`lake expire`: remove snapshots, then the files that only they reference."""
