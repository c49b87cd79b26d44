"""Bytes: file systems and object stores, and Avro containers.

Nothing here knows what a table is. A line about one manifest belongs to `table`; one about rows, to `data`.

    text = Storage({"s3.region": "eu-west-1"}).read("s3://bucket/t/metadata/v3.metadata.json")
"""
