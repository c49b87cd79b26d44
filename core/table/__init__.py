"""Iceberg metadata in and out: catalogs, manifests, lineage, commits."""
