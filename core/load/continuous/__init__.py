"""Loads that go on: what arrives in a folder, a table or a topic becomes epochs of a stream, each one commit.

Belongs here: what the kinds of sources share: epochs, state, options, the run around an epoch. Does not belong here:
how one epoch is loaded (`lake.core.load.ingest`, `lake.core.load.upsert`, `lake.core.load.changelog_load`).

Terms: an *epoch* is the rows that are loaded together, in one commit of each table; Flink's word is checkpoint.
Elsewhere an epoch is the Unix epoch. A log system beside the table, as in a write to Kafka and the table at once, is
not built: it needs a transaction over both, which does not exist.
"""
