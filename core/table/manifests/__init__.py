"""Manifests and manifest lists as Arrow tables.

Belongs here: their schemas, decoding, encoding and entries. Does not belong here: decisions over several
snapshots (`lake.core.table.snapshots`).
"""
