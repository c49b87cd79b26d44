"""What a table is, as its metadata describes it: catalogs, metadata files, manifests, snapshots, refs.

Everything here reads; `transaction` changes a table. Rows and data files belong to `data`.

    table = catalog.load("db.events")
    live = live_files(table, table.metadata.current_snapshot())
"""
