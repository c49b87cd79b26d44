"""Iceberg Java reads tables that lake repaired, commits to them and expires their snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import open_session, pyiceberg_catalog, pyiceberg_table
from support.tables.metadata_edits import edit_metadata, read_metadata

from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

pytestmark = pytest.mark.java
_LATER = "TIMESTAMP '2100-01-01 00:00:00'"


def _made(warehouse: Path, java: JavaPeer, version: int) -> None:
    """Let Java write files of several commits and, if the version has deletes, delete rows 3 and 13 by position."""
    pyiceberg_catalog(warehouse).create_namespace("db")
    mode = "'write.delete.mode'='merge-on-read'"
    properties = f"TBLPROPERTIES ('format-version'='{version}', {mode})"
    java.sql(warehouse, f"CREATE TABLE {{c}}.db.t (id bigint) USING iceberg {properties}")
    for start in (0, 10, 20):
        java.sql(
            warehouse,
            f"INSERT INTO {{c}}.db.t SELECT /*+ COALESCE(1) */ id FROM range({start}, {start + 10})",
        )
    if version > 1:
        java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id IN (3, 13)")


def _ids(warehouse: Path, java: JavaPeer) -> list[int]:
    return sorted(row["id"] for row in java.read(warehouse, "db.t"))


def _data_file(warehouse: Path, low: int) -> Any:
    table = pyiceberg_table(warehouse)
    (file,) = (
        entry.data_file
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content == 0
        and int.from_bytes(entry.data_file.lower_bounds[1], "little") == low
    )
    return file


@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_reads_what_is_left_and_continues_with_the_right_totals(
    warehouse: Path, java: JavaPeer, version: int
) -> None:
    _made(warehouse, java, version)
    lake = CommandLine(warehouse)
    Path(_data_file(warehouse, 10).file_path.removeprefix("file:")).unlink()
    edit_metadata(
        warehouse,
        lambda plain: plain["snapshots"][-1]["summary"].update({"total-records": "77"}),
    )

    repairs = ("--repair", "missing-files", "--repair", "totals", "--repair", "dangling-deletes")
    done = lake.ok("check", "db.t", *repairs, "--yes")

    left = [number for number in (*range(10), *range(20, 30)) if number != 3 or version == 1]
    assert len(done["snapshot_ids"]) == 2
    assert _ids(warehouse, java) == left
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (100)")
    java.sql(
        warehouse,
        f"CALL {{c}}.system.expire_snapshots(table => 'db.t', retain_last => 1, older_than => {_LATER})",
    )
    assert _ids(warehouse, java) == [*left, 100]
    assert lake.ok("check", "db.t", "--rows")["result"]["findings"] == []
    summary = read_metadata(warehouse)["snapshots"][-1]["summary"]
    assert summary["total-records"] == "21"


@pytest.mark.parametrize("version", [2, 3])
def test_an_expiry_by_java_keeps_the_file_whose_second_entry_was_dropped(
    warehouse: Path, java: JavaPeer, version: int
) -> None:
    _made(warehouse, java, version)
    lake = CommandLine(warehouse)
    file = _data_file(warehouse, 20)
    path = Path(file.file_path.removeprefix("file:"))
    session = open_session(warehouse)
    again = DataFile(
        path=file.file_path,
        spec_id=0,
        partition=(),
        record_count=file.record_count,
        size_bytes=file.file_size_in_bytes,
    )
    request = CommitRequest(operation_id=session.ids.uuid())
    commit_snapshot(session, session.table("db.t"), AppendFiles(added=[again]), request)
    rows = [number for number in range(30) if number not in {3, 13}]
    assert _ids(warehouse, java) == sorted([*rows, *range(20, 30)])

    lake.ok("check", "db.t", "--repair", "duplicate-files", "--yes")

    assert _ids(warehouse, java) == rows
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (100)")
    java.sql(
        warehouse,
        f"CALL {{c}}.system.expire_snapshots(table => 'db.t', retain_last => 1, older_than => {_LATER})",
    )
    assert path.exists()
    assert _ids(warehouse, java) == [*rows, 100]
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 25")
    assert _ids(warehouse, java) == [number for number in (*rows, 100) if number != 25]


def test_java_reads_a_table_without_the_lost_refs_and_statistics(
    warehouse: Path, java: JavaPeer
) -> None:
    _made(warehouse, java, 2)
    java.sql(warehouse, "CALL {c}.system.compute_table_stats(table => 'db.t')")
    statistics = read_metadata(warehouse)["statistics"][0]["statistics-path"]
    Path(statistics.removeprefix("file:")).unlink()
    edit_metadata(
        warehouse,
        lambda plain: plain["refs"].update({"lost": {"type": "tag", "snapshot-id": 7}}),
    )

    CommandLine(warehouse).ok(
        *("check", "db.t", "--repair", "refs", "--repair", "statistics", "--yes")
    )

    plain = read_metadata(warehouse)
    assert (set(plain["refs"]), plain.get("statistics", [])) == ({"main"}, [])
    assert _ids(warehouse, java) == [number for number in range(30) if number not in {3, 13}]
    java.sql(warehouse, "CALL {c}.system.compute_table_stats(table => 'db.t')")
    assert len(read_metadata(warehouse)["statistics"]) == 1
