"""Source files of an ingest: discovery, formats, type inference and parsing.

Data files of tables do not belong here (`lake.core.data.rows`).
"""
