"""A manifest list that was cut where a shorter one is valid is noticed; writers that miscount are forgiven."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    files_below,
    make_table,
    open_session,
    pyiceberg_table,
    write_file,
)

from lake.core.base.errors import CorruptFileError
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import IGNORE_TOTALS
from lake.core.table.manifests.api import MANIFEST_SCHEMA
from lake.core.table.snapshots.completeness import FileCounts, count_lists
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles, RewriteFiles


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Three appends, a manifest each, and a tag on the second."""
    found = tmp_path / "w"
    make_table(found)
    for number in range(3):
        append(found, [number])
        if number == 1:
            table = pyiceberg_table(found)
            table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "kept").commit()
    return found


def append(warehouse: Path, ids: list[int]) -> None:
    session = open_session(warehouse)
    table = session.table("db.t")
    operation = AppendFiles(added=[write_file(table, ids)])
    commit_snapshot(session, table, operation, CommitRequest(operation_id=session.ids.uuid()))


def cut(warehouse: Path, snapshot: int, rows: int) -> None:
    """Leave only the first rows of a snapshot's list."""
    metadata = pyiceberg_table(warehouse).metadata
    path = Path(metadata.snapshots[snapshot].manifest_list.removeprefix("file://"))
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        found, schema = list(reader), reader.writer_schema
    assert schema is not None
    out = io.BytesIO()
    fastavro.writer(out, schema, found[:rows], codec="deflate")
    path.write_bytes(out.getvalue())


def set_properties(warehouse: Path, **properties: Any) -> None:
    table = pyiceberg_table(warehouse)
    with table.transaction() as change:
        change.set_properties(properties)


EXPIRE = ["expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention"]


def test_a_list_without_a_row_is_refused_by_all_that_read_it(warehouse: Path) -> None:
    cut(warehouse, -1, 0)
    lake = CommandLine(warehouse, engine="inline")
    for command in (["scan", "db.t", "--plan"], ["compact", "db.t", "--dry-run"], EXPIRE):
        result = lake("--json", *command)
        assert result.exit_code == 7
        assert "names 0 live data files" in result.json()["error"]["message"]


def test_a_shorter_list_is_read_with_a_warning(warehouse: Path) -> None:
    cut(warehouse, -1, 2)
    document = CommandLine(warehouse).ok("scan", "db.t", "--plan")
    assert document["plan"]["files"] == 2
    (warning,) = document["warnings"]
    assert "names 2 live data files in 2 manifests" in warning
    assert "counts 3" in warning


@pytest.mark.parametrize("snapshot", [-1, -2])
def test_a_shorter_list_of_what_is_kept_stops_expiry(warehouse: Path, snapshot: int) -> None:
    cut(warehouse, snapshot, 1)
    before = sorted(warehouse.rglob("*.parquet"))
    result = CommandLine(warehouse)("--json", *EXPIRE)
    assert result.exit_code == 7
    assert sorted(warehouse.rglob("*.parquet")) == before


@pytest.mark.parametrize("snapshot", [0, 1, 2])
def test_files_of_a_shorter_list_are_not_taken_for_strangers(
    warehouse: Path, snapshot: int
) -> None:
    cut(warehouse, snapshot, snapshot)
    table = open_session(warehouse).table("db.t")
    with pytest.raises(CorruptFileError, match=f"names {snapshot} live data files"):
        find_referenced(table.storage, table.metadata, ["file:///stranger"])


def test_nothing_is_committed_on_a_shorter_list(warehouse: Path, tmp_path: Path) -> None:
    cut(warehouse, -1, 2)
    (tmp_path / "more.csv").write_text("id,name\n9,x\n")
    result = CommandLine(warehouse)("--json", "ingest", "db.t", tmp_path / "more.csv")
    assert result.exit_code == 7
    assert IGNORE_TOTALS.name in result.json()["error"]["hint"]


def test_nothing_is_committed_on_a_list_that_is_another_when_it_is_read_again(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte of a name that goes wrong on the way would lose all that the manifest holds."""
    read, seen = Storage.read, set()

    def once_wrong(storage: Storage, location: str, **named: Any) -> bytes:
        data = bytearray(read(storage, location, **named))
        if "/snap-" in location and location not in seen:
            seen.add(location)
            data[-20] ^= 1
        return bytes(data)

    (tmp_path / "more.csv").write_text("id,name\n9,x\n")
    before = files_below(warehouse)
    monkeypatch.setattr(Storage, "read", once_wrong)
    result = CommandLine(warehouse)("--json", "ingest", "db.t", tmp_path / "more.csv")

    assert result.exit_code == 7
    assert "returned different bytes on two reads" in result.json()["error"]["message"]
    assert files_below(warehouse) == before


def test_a_table_may_say_that_its_totals_are_wrong(warehouse: Path, tmp_path: Path) -> None:
    cut(warehouse, -1, 2)
    set_properties(warehouse, **{IGNORE_TOTALS.name: "true"})
    (tmp_path / "more.csv").write_text("id,name\n9,x\n")
    lake = CommandLine(warehouse)
    lake.ok("ingest", "db.t", tmp_path / "more.csv")
    assert lake.ok("scan", "db.t", "--plan")["warnings"] == []


def test_a_writer_that_did_not_count_what_it_removed_is_forgiven(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lake.core.transaction.commit import snapshot_producer

    session = open_session(warehouse)
    table = session.table("db.t")
    head = table.metadata.current_snapshot_id
    first = _paths(warehouse)[:1]
    operation = RewriteFiles(added=[], removed_paths=first, base_snapshot_id=head)
    monkeypatch.setattr(snapshot_producer.SummaryCounter, "remove", lambda *_: None)
    commit_snapshot(session, table, operation, CommitRequest(operation_id=session.ids.uuid()))
    monkeypatch.undo()
    summary = pyiceberg_table(warehouse).metadata.snapshots[-1].summary
    assert summary is not None
    assert summary["total-data-files"] == "3"
    append(warehouse, [7])
    lake = CommandLine(warehouse)
    assert lake.ok("compact", "db.t", "--dry-run", "--rewrite-all")["plan"]["input_files"] == 3
    lake.ok(*EXPIRE)


def _paths(warehouse: Path) -> list[str]:
    table = pyiceberg_table(warehouse)
    return [str(path) for path in table.inspect.files()["file_path"].to_pylist()]


def test_files_are_counted_list_by_list() -> None:
    rows = [
        {"content": 0, "added_files_count": 1, "existing_files_count": 2},
        {"content": 1, "added_files_count": 4, "existing_files_count": 0},
        {"content": 0, "added_files_count": None, "existing_files_count": 5},
    ]
    table = pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA)
    found = count_lists(table, [2, 0, 1])
    assert found == [FileCounts(2, 3, 4), FileCounts(0, 0, 0), FileCounts(1, None, 0)]
