"""A history whose beginning expired is not taken for a whole one, though its oldest snapshot has no parent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, pyiceberg_table


def expire_first(table: Any) -> None:
    """Expire the oldest snapshot and forget that it was a parent, as PyIceberg's own expiry does."""
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["snapshots"][0].pop("parent-snapshot-id", None)
    path.write_text(json.dumps(document))


def cut(warehouse: Path, version: str) -> None:
    """Make a table of three appends whose first expired."""
    table = make_table(warehouse, format_version=version)
    for number in range(3):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]}))
    expire_first(table)


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_increment_without_a_start_warns_that_rows_are_missing(
    lake: CommandLine, warehouse: Path, version: str
) -> None:
    cut(warehouse, version)

    document = lake.ok("scan", "db.t", "--to-snapshot", "main")

    assert sorted(row["id"] for row in document["result"]["preview"]) == [1, 2]
    assert "older snapshots have expired" in " ".join(document["warnings"])


@pytest.mark.parametrize("version", ["1", "2"])
def test_changes_without_a_start_warn_that_changes_are_missing(
    lake: CommandLine, warehouse: Path, version: str
) -> None:
    cut(warehouse, version)

    document = lake.ok("scan", "db.t", "--changes", "--to-snapshot", "main")

    assert [row["id"] for row in document["result"]["preview"]] == [1, 2]
    assert "older snapshots have expired" in " ".join(document["warnings"])


def test_a_whole_history_warns_of_nothing(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse)
    for number in range(2):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]}))

    for options in ((), ("--changes",)):
        assert not lake.ok("scan", "db.t", *options, "--to-snapshot", "main")["warnings"]


def test_a_run_is_not_finished_where_the_history_since_it_began_is_cut(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse)
    source = tmp_path / "rows.csv"
    source.write_text("id,name\n7,x\n")
    lake.ok("ingest", "db.t", source, "--stage", "--run-id", "r1")
    table = pyiceberg_table(warehouse)
    for number in range(3):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]}))
    expire_first(table)

    result = lake("--json", "ingest", "db.t", source, "--run-id", "r1")

    assert result.exit_code == 3
    assert "not all snapshots since then are left" in result.json()["error"]["message"]
