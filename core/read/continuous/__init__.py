"""Follow a table: what a continuous scan reads, where it stands, and how it hands rows over.

Consumers, which protect from expiry what is not read yet, belong here too.

Reading a range of snapshots once does not belong here (`lake.core.read.scan`, `lake.core.read.changelog`).

Terms: an *epoch* is the rows that are handed over together; Flink's word is checkpoint.
"""
