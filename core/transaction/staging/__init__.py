"""Files that are written but not committed: staged runs, claims, and cleanup after failures.

Does not belong here: the commit itself (`lake.core.transaction.commit`).
"""
