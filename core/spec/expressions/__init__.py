"""Row filters: parsing, binding to a schema, and evaluation; the grammar of conditions of runs.

Belongs here: filter syntax, literals and predicates. Does not belong here: pruning of files by their
statistics (`lake.core.table.snapshots.pruning`).
"""
