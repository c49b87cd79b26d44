"""Bytes: file systems and object stores, and Avro containers.

Nothing here knows what a table is. A line about one manifest belongs to `table`; one about rows, to `data`.

    storage.read("s3://bucket/table/metadata/v3.metadata.json")
"""
