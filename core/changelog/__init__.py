"""`lake scan --changes`: the row changes between two snapshots.

Does not belong here: loading a change log (`lake.core.changelog_load`).
"""
