"""Order of rows: sort keys, range partitioning and external sorting.

Does not belong here: equality (`lake.core.data.keys`).
"""
