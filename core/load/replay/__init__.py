"""`lake replay`: find, check and commit the files of uncommitted Flink checkpoints.

The formats of checkpoints do not belong here (`lake.core.table.flink`).
"""
