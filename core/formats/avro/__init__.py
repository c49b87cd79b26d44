"""Avro data files: schemas, readers and writers.

Does not belong here: the container format (`lake.core.avro`).
"""
