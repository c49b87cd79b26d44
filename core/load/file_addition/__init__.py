"""Add existing Parquet files to a table: their footers are checked, and give metrics and partitions.

Does not belong here: files whose rows are read and written again (`lake.core.load.ingest`).
"""
