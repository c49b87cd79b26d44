"""Iceberg types and single values, and their Arrow counterparts.

Belongs here: type mappings, single-value serialization, bounds, transforms, partition values, sort orders, and
the limits of format versions. Does not belong here: files, manifests, or anything that reads storage.
"""
