"""Servers that tests start on loopback and stop by process id: PostgreSQL, REST catalog, S3, Spark cluster."""
