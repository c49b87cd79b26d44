"""Loads that go on: what arrives in a folder, a table or a topic becomes epochs of a stream, each one commit.

Belongs here: what the kinds of sources share: epochs, state, options, the run around an epoch. Does not belong here:
how one epoch is loaded (`lake.core.load.ingest`, `lake.core.load.upsert`, `lake.core.load.changelog_load`).
"""
