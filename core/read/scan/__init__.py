"""`lake scan`: plan and read a snapshot, or the appends between two snapshots.

A *split* is a part of a scan, packed from slices of files.
"""
