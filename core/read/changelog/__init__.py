"""The row changes between two snapshots.

Loading a change log does not belong here (`lake.core.load.changelog_load`).

A *unit* is the part of a change log that one task reads. Change logs written beside the data (Paimon's changelog
producers) are not built: they double the storage, and the same rows can be computed when they are read.
"""
