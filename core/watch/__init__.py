"""A load that goes on: files that arrive in a folder or bucket become epochs of a stream, each one commit.

Does not belong here: how one epoch is loaded (`lake.core.ingest`, `lake.core.upsert`, `lake.core.changelog_load`).
"""
