"""`lake expire`: remove snapshots, then delete the files that only they reference."""
