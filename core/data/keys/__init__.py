"""Equality of rows: key encoding, hash indexes and numbering.

Does not belong here: order (`lake.core.data.sorting`).
"""
