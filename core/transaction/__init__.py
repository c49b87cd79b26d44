"""One change of a table: operations become snapshots, exactly once; sessions, locks, staged and unused files.

The capabilities of `load` and `maintain` decide what is changed; this wing changes it.

    commit_snapshot(session, table, AppendFiles(added=files), CommitRequest(operation_id=number))
"""
