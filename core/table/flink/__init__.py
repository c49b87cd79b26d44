"""Flink's checkpoints, savepoints and sink state.

Belongs here: formats and names that Flink and Iceberg's Flink sinks define. Does not belong here: what is
replayed (`lake.core.load.replay`).

A *checkpoint* is the point up to which a job's state, and the files that it names, are complete.
"""
