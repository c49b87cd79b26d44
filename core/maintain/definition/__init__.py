"""`lake create` and `lake alter`: definitions of tables.

Belongs here: changes of a table's schema, partitioning, sort order, properties, format version and name. Does not
belong here: snapshots, branches and tags (`core/maintain/branching`), and how a load completes a schema
(`core/load/ingest`).
"""
