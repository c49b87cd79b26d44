"""Catalogs: load tables, swap metadata, vend credentials.

Belongs here: each catalog backend, PyIceberg's configuration, and every patch of PyIceberg. Does not belong
here: the content of a commit (`lake.core.transaction.commit`).
"""
