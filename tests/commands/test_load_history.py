"""What the history of a table says about its loads: source, command, run and user; and that files came twice."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.csv_files import csv

from lake.core.base.locations import public_form

LOADED = "the same files were loaded before"


@pytest.fixture(autouse=True)
def _inline(lake: CommandLine) -> None:
    lake.engine = "inline"


def summary_of(lake: CommandLine, name: str = "db.t") -> dict[str, str]:
    snapshot = lake.table(name).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return dict(snapshot.summary.additional_properties)


def newest(lake: CommandLine) -> dict[str, Any]:
    found: dict[str, Any] = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]
    return found


def test_a_snapshot_says_what_was_loaded_how_and_by_whom(lake: CommandLine, tmp_path: Path) -> None:
    source = csv(tmp_path / "in.csv", "id,s", "1,x")
    lake.ok("ingest", "db.t", source, "--create", "--run-id", "r1")
    row = newest(lake)
    assert (row["source"], row["command"], row["run_id"]) == (str(source), "ingest", "r1")
    assert row["user"].startswith(f"{getpass.getuser()}@")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id")
    assert newest(lake)["command"] == "ingest (upsert)"
    lake.ok("ingest", "db.u", "--from-table", "db.t", "--create")
    assert summary_of(lake, "db.u")["lake.source"] == "db.t"
    files = [csv(tmp_path / f"{number}.csv", "id,s", f"{number},x") for number in range(5)]
    lake.ok("ingest", "db.t", *files)
    assert newest(lake)["source"] == f"{files[0]}, {files[1]}, {files[2]} and 2 more"
    lake.ok("ingest", "db.{s}", source, "--route", "s", "--create")
    assert summary_of(lake, "db.x")["lake.source"] == str(source)
    assert str(source) in lake("-v", "snapshots", "db.t").stdout


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://u:secret@h/a.csv?X-Amz-Signature=abc#f", "https://h/a.csv"),
        ("s3://key:secret@bucket/p/a.parquet", "s3://bucket/p/a.parquet"),
        ("s3://bucket/a@b/c.csv", "s3://bucket/a@b/c.csv"),
        ("https://h?token=x", "https://h"),
        ("/data/what?.csv", "/data/what?.csv"),
    ],
)
def test_the_history_shows_no_secrets(location: str, shown: str) -> None:
    assert public_form(location) == shown


def test_files_that_are_loaded_again_are_noticed(lake: CommandLine, tmp_path: Path) -> None:
    source = csv(tmp_path / "in.csv", "id", "1")
    first = lake.ok("ingest", "db.t", source, "--create")
    again = lake("-q", "ingest", "db.t", source)
    assert again.exit_code == 0
    assert LOADED in again.stderr
    assert str(first["snapshot_ids"][0]) in again.stderr
    assert lake.table().scan().to_arrow().num_rows == 2
    source.write_text("id\n2\n")
    assert lake.ok("ingest", "db.t", source)["warnings"] == []
    table = tmp_path / "in.parquet"
    pq.write_table(pq.read_table(next((lake.warehouse / "db/t/data").glob("*.parquet"))), table)
    lake.ok("ingest", "db.t", table)
    assert LOADED in lake.ok("ingest", "db.t", table, "--dry-run")["warnings"][0]
    assert lake.ok("ingest", "db.t", table, "--overwrite")["warnings"] == []


def test_files_whose_load_was_rolled_back_are_new(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("ingest", "db.t", csv(tmp_path / "0.csv", "id", "0"), "--create")
    source = csv(tmp_path / "in.csv", "id", "1")
    lake.ok("ingest", "db.t", source)
    parent = newest(lake)["parent_id"]
    lake.ok("rollback", "db.t", parent)
    assert lake.ok("ingest", "db.t", source)["warnings"] == []
