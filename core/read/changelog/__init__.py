"""The row changes between two snapshots.

Loading a change log does not belong here (`lake.core.load.changelog_load`).
"""
