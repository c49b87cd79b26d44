"""Loads from Kafka: the messages of a topic become epochs of a stream, each one commit.

The offsets are in the table only: the snapshot of an epoch contains the offsets after it. A run that is killed reads
the same messages again, and the branch takes each epoch once.

Does not belong here: how one epoch is loaded (`lake.core.load.ingest`, `lake.core.load.upsert`,
`lake.core.load.changelog_load`).
"""
