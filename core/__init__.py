"""Everything lake knows about Iceberg tables; nothing about terminals."""
