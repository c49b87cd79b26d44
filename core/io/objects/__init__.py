"""Requests to object stores for objects and parts of them.

Belongs here: clients, their errors, and large objects that are read and written in parts. Does not belong here:
locations, credentials of catalogs and local files; they belong to `lake.core.io.storage`.
"""
