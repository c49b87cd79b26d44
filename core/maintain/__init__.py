"""Capabilities that keep a table in order: compaction, expiry, orphans, checks, repairs, refs, definitions.

They change how rows are stored, which history is kept, or what the catalog contains.

    plan = plan_compaction(session, table, CompactionOptions(target_bytes=512 * MIB))
"""
