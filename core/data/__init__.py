"""Rows: file formats, columns, keys, order, deletes, and the files of others that are loaded.

Nothing here commits. What decides which rows a command reads or writes belongs to `read`, `load` or `maintain`.

    batches = read_batches(storage, file, ReadSettings.of(table, projection=table.schema))
"""
