"""Rows: file formats, columns, keys, order, deletes, and the files of others that are loaded.

Nothing here commits. What decides which rows a command reads or writes belongs to `read`, `load` or `maintain`.

    for batch in read_rows(storage, file, projection): ...
"""
