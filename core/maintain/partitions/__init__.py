"""`lake partitions` and `lake expire-partitions`: the partitions of a table, and the removal of old ones."""
