"""Files to ingest: discovery, formats, inference and parsing.

Does not belong here: data files of tables (`lake.core.rows`).
"""
