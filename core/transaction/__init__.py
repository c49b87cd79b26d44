"""One change of a table: operations become snapshots, exactly once; sessions, locks, staged and unused files.

The capabilities of `load` and `maintain` decide what is changed; this wing changes it.

A *session* is the settings, the catalog, the engine and the run context of one invocation. A *run context* is its
clock, ids, progress, warnings, interrupts and protected files. A load can have a *run id*, by which a
repetition recognises it.

    commit_snapshot(session, table, AppendFiles(added=files), CommitRequest(operation_id=number))
"""
