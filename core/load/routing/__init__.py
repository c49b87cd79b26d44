"""Loads into many tables: divides the rows of files by a column and loads each part into its own table.

Does not belong here: how one table is loaded (`lake.core.load.ingest`, `lake.core.load.upsert`).
"""
