"""Writers beside a compaction: the partitions that they are changing, and the snapshot that expiries must keep.

Belongs here: what a compaction learns of other writers and tools, and what it does so that both succeed. Does not
belong here: the validation of a commit (`core/transaction/commit`).
"""
