"""Continuous loads of the commits of another table: each becomes an epoch of a copy.

How the commits are found does not belong here (`lake.core.read.continuous`).
"""
