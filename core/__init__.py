"""Everything that lake knows about Iceberg tables; nothing about terminals."""
