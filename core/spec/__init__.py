"""Iceberg's specification as values: types, transforms, filters, table properties.

Nothing here reads a file. What reads or writes metadata belongs to `table`; what reads rows, to `data`.

    condition = parse_filter("amount > 10 and country = 'NZ'")
"""
