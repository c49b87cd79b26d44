"""Flink's checkpoints, savepoints and sink state.

Belongs here: formats and names that Flink and Iceberg's Flink sinks define. Does not belong here: what is
replayed (`lake.core.load.replay`).
"""
