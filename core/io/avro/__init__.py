"""Avro object container files and their records as Arrow columns.

Belongs here: blocks, codecs, bounded decoding and encoding by field id. Does not belong here: what a manifest
is (`lake.core.table.manifests`), or data files (`lake.core.data.formats.avro`).
"""
