"""Rows of data files in bounded batches, independent of the file format.

Belongs here: readers and writers of a table's rows. Does not belong here: deletes (`lake.core.deletes`) and
engines (`lake.core.engine`).
"""
