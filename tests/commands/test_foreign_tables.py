"""All commands on tables that PyIceberg wrote, in every version, by every transform, evolved and upgraded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table
from support.tables.pyiceberg_tables import course, edit

# The long tests have all versions by all transforms.
EVERYDAY = (
    ("1, as of old", "identity"),
    ("1 to 3", "hour"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "transform"), EVERYDAY, ids=[f"{one} by {by}" for one, by in EVERYDAY]
)
def test_all_commands_work_on_a_table_of_pyiceberg(
    tmp_path: Path, version: str, transform: str
) -> None:
    course(tmp_path, version, transform).run()


def test_snapshots_without_manifest_lists_are_refused_in_words(tmp_path: Path) -> None:
    run = course(tmp_path, "1, as of old", "unpartitioned")

    def list_manifests(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            snapshot["manifests"] = [snapshot.pop("manifest-list")]

    edit(run.warehouse, run.table, list_manifests)

    for command in (("scan", "db.t"), ("compact", "db.t"), ("expire", "db.t")):
        found = run.lake("--json", *command)
        assert (found.exit_code, found.json()["error"]["kind"]) == (3, "refused")
        assert "manifest lists" in found.json()["error"]["message"]


@pytest.mark.parametrize("version", [1, 2])
def test_rows_of_existing_files_that_a_list_counts_as_added_are_read(
    lake: CommandLine, warehouse: Path, version: int
) -> None:
    merged_manifests(lake, version)

    edit_list(warehouse, count_rows_as_added)

    assert lake.ok("scan", "db.t")["result"]["rows"] == 3
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("ingest", "db.t", "0.csv")
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    assert lake.ok("scan", "db.t")["result"]["rows"] == 4


@pytest.mark.parametrize(
    "column",
    [
        "added_rows_count",
        "existing_rows_count",
        "deleted_rows_count",
        "added_files_count",
        "existing_files_count",
        "deleted_files_count",
    ],
)
def test_a_count_that_a_manifest_does_not_hold_is_refused(
    lake: CommandLine, warehouse: Path, column: str
) -> None:
    merged_manifests(lake, 2)

    def one_more(row: dict[str, Any]) -> None:
        row[column] += 1

    edit_list(warehouse, one_more)

    found = lake("--json", "scan", "db.t")
    assert (found.exit_code, found.json()["error"]["kind"]) == (7, "corrupt")


def merged_manifests(lake: CommandLine, version: int) -> None:
    """Make a table of three files whose manifest holds added and existing files."""
    properties = [f"format-version={version}", "commit.manifest.min-count-to-merge=2"]
    options = [part for item in properties for part in ("--property", item)]
    for number in range(3):
        Path(f"{number}.csv").write_text(f"id\n{number}\n")
        lake.ok("ingest", "db.t", f"{number}.csv", "--create", *options)
        options = []


def count_rows_as_added(row: dict[str, Any]) -> None:
    row["added_rows_count"] += row["existing_rows_count"]
    row["existing_rows_count"] = 0


def edit_list(warehouse: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the rows of the current manifest list as another writer would have written them."""
    snapshot = pyiceberg_table(warehouse).current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    with path.open("rb") as opened:
        reader = fastavro.reader(opened)
        schema, rows = json.loads(reader.metadata["avro.schema"]), list(reader)
    before = json.dumps(rows, default=str)
    for row in rows:
        change(row)
    assert json.dumps(rows, default=str) != before
    with path.open("wb") as opened:
        fastavro.writer(opened, schema, rows)
