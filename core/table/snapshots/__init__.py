"""The snapshots of a table: ancestry, live files, pruning, and the delete index.

Belongs here: reading the graph of snapshots. Does not belong here: changing it (`lake.core.transaction.commit`).
"""
