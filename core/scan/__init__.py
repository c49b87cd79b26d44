"""Plan and read a table, or what was appended to it between two snapshots."""
