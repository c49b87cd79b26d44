"""Catalogs of which PyIceberg writes the metadata files in this process, and a service keeps the entries.

Belongs here: what such a service promises about an entry, and how its answers are read. Does not belong here: what
is the same for all catalogs (`lake.core.table.catalogs.pyiceberg_catalog`).
"""
