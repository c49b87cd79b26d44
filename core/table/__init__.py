"""What a table is, as its metadata describes it: catalogs, metadata files, manifests, snapshots, refs.

Everything here reads; `transaction` changes a table. Rows and data files belong to `data`.

    files = live_files(table, branch_head(table.metadata, "main"))
"""
