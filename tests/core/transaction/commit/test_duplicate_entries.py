"""Commits that drop the second entry of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables.iceberg_tables import ids_in, make_table, open_session, write_file

from lake.core.base.errors import CommitConflictError
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles, DropDuplicates


def _request(name: str) -> CommitRequest:
    return CommitRequest(operation_id=f"00000000-0000-0000-0000-00000000000{name}")


def test_entries_that_were_compared_on_an_older_head_are_a_conflict(tmp_path: Path) -> None:
    make_table(tmp_path)
    session = open_session(tmp_path)
    table = session.table("db.t")
    file = write_file(table, [1, 2])
    table = commit_snapshot(session, table, AppendFiles(added=[file, file]), _request("1")).table
    drop = DropDuplicates(
        paths=frozenset({file.path}), base_snapshot_id=table.metadata.current_snapshot_id or 0
    )
    other = AppendFiles(added=[write_file(table, [3])])
    table = commit_snapshot(session, table, other, _request("2")).table

    with pytest.raises(CommitConflictError):
        commit_snapshot(session, table, drop, _request("3"))

    assert ids_in(tmp_path) == [1, 1, 2, 2, 3]


def test_a_file_with_one_entry_is_a_conflict(tmp_path: Path) -> None:
    make_table(tmp_path)
    session = open_session(tmp_path)
    table = session.table("db.t")
    file = write_file(table, [1])
    table = commit_snapshot(session, table, AppendFiles(added=[file]), _request("1")).table
    head = table.metadata.current_snapshot_id or 0
    drop = DropDuplicates(paths=frozenset({file.path}), base_snapshot_id=head)

    with pytest.raises(CommitConflictError):
        commit_snapshot(session, table, drop, _request("2"))

    assert ids_in(tmp_path) == [1]
