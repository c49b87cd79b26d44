"""Requests to object stores for whole objects.

Belongs here: clients, their errors, and objects that are written piece by piece. Does not belong here: locations,
credentials of catalogs and local files; they belong to `lake.core.io.storage`.
"""
