"""Row-level deletes: reading, applying and writing delete files.

Does not belong here: which delete file applies to which data file (`lake.core.table.snapshots.delete_index`).
"""
