"""What happened to a table's rows between two snapshots, through all operations and all kinds of deletes."""
