"""Values of one column, and the description of a data file's columns, for every file format.

Belongs here: column mapping by field id, type promotion, nullability, defaults, metrics and text forms. Does
not belong here: the bytes of one file format (`lake.core.formats`).
"""
