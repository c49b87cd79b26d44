"""Table metadata files: reading, checking and writing them.

Belongs here: the JSON text, its model, commit times, and updates that PyIceberg does not implement. Does not
belong here: which catalog stores the current metadata location (`lake.core.table.catalogs`).
"""
