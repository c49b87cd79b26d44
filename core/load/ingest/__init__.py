"""`lake ingest`: load files into a table in one commit.

Does not belong here: loads that replace rows by key (`lake.core.load.upsert`, `lake.core.load.changelog_load`).
"""
