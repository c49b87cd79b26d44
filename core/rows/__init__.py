"""Rows in and out of data files: readers, writers, partitioning."""
