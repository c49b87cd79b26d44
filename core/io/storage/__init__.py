"""Bytes in object stores and file systems.

Belongs here: reads, writes, deletes, credentials and atomic creation. Does not belong here: knowledge of
Iceberg's metadata.
"""
