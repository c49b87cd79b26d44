"""Capabilities that keep a table in order: compaction, expiry, orphans, checks, repairs, refs, definitions.

They change how rows are stored, which history is kept, or what the catalog contains. What adds rows belongs to
`load`; what reads rows for people or tools, to `read`.

    plan = plan_compaction(table, CompactionOptions(), branch="main")
"""
