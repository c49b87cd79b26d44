"""`lake scan`: plan and read a snapshot, or the appends between two snapshots."""
