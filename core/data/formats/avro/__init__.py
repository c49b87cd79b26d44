"""Avro data files: schemas, readers and writers.

The container format does not belong here (`lake.core.io.avro`).
"""
