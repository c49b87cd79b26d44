"""`lake replay`: find, check and commit files of uncommitted Flink checkpoints.

Does not belong here: the formats of checkpoints (`lake.core.flink`).
"""
