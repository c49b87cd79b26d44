"""Catalogs, metadata and names whose contents are wrong: typed errors, and no rows are lost."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in
from support.tables.metadata_edits import edit_metadata, metadata_path, read_metadata


def load(lake: CommandLine, *numbers: int, options: tuple[object, ...] = ()) -> None:
    text = "".join(f"{item}\n" for item in ("id", *numbers))
    lake.load(text, "--create", *options)


@pytest.mark.parametrize("command", ["cherry-pick", "fast-forward"])
def test_a_wrong_parent_does_not_make_a_branch_lose_rows(lake: CommandLine, command: str) -> None:
    load(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    load(lake, 2, options=("--branch", "audit"))
    load(lake, 3)
    head = read_metadata(lake.warehouse)["current-snapshot-id"]

    def move(plain: dict[str, Any]) -> None:
        audit = plain["refs"]["audit"]["snapshot-id"]
        (one,) = (item for item in plain["snapshots"] if item["snapshot-id"] == audit)
        (main,) = (item for item in plain["snapshots"] if item["snapshot-id"] == head)
        one["parent-snapshot-id"], main["parent-snapshot-id"] = head, None

    edit_metadata(lake.warehouse, move)
    line = ["cherry-pick", "db.t", "audit"]
    if command == "fast-forward":
        line = ["ref", "db.t", "--fast-forward", "main", "--to", "audit"]

    result = lake(*line)

    assert result.exit_code == 7, result
    assert "a larger sequence number" in result.stderr
    assert ids_in(lake.warehouse) == [1, 3]


@pytest.mark.parametrize("column", ["table_namespace", "table_name", "metadata_location"])
def test_rows_of_a_database_that_are_not_texts_end_no_command(
    lake: CommandLine, column: str
) -> None:
    load(lake, 1)
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        (row,) = database.execute("SELECT * FROM iceberg_tables")
        database.execute(
            f"INSERT INTO iceberg_tables VALUES ({', '.join('?' * len(row))})",
            (row[0], "db", "u", *row[3:]),
        )
        database.execute(
            f"UPDATE iceberg_tables SET {column} = ? WHERE table_name = 'u'", (b"\xff",)
        )

    assert lake("tables").exit_code in {0, 6, 7}
    lake.ok("expire", "db.t", "--older-than", "30d", "--keep-files")
    assert lake("show", "db.missing").exit_code == 7


def test_a_hadoop_table_whose_hint_names_no_version_is_listed_with_its_error(
    warehouse: Path,
) -> None:
    lake = CommandLine(warehouse, catalog_type="hadoop")
    load(lake, 1)
    (warehouse / "db" / "t" / "metadata" / "version-hint.text").write_text("0")

    result = lake("--json", "tables")

    assert result.exit_code == 6, result
    (row,) = result.json()["result"]["tables"]
    assert (row["table"], row["error"]["kind"]) == ("db.t", "not-found")


def test_metadata_that_are_too_large_are_not_registered(lake: CommandLine) -> None:
    load(lake, 1)
    path = metadata_path(lake.warehouse)
    lake.ok("drop", "db.t")
    with path.open("ab") as file:
        file.truncate(2**28 + 1)

    result = lake("register", "db.t", path)

    assert result.exit_code == 7, result
    assert path.name in result.stderr


def test_partitions_whose_time_no_calendar_has_are_shown(lake: CommandLine, tmp_path: Path) -> None:
    load(lake, 1)

    def move(plain: dict[str, Any]) -> None:
        plain["snapshots"][0]["timestamp-ms"] = 2**62

    edit_metadata(lake.warehouse, move)

    lake.ok("inspect", "db.t", "partitions", "--output", tmp_path / "rows.json")
    assert '"last_updated_at":null' in (tmp_path / "rows.json").read_text().replace(" ", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("rename", "db.t", "x" * 3000 + ".t"), "is too long for the name of a table"),
        (
            ("create", "db.u", "id long", "--partition-by", f"bucket({'9' * 5000}, id)"),
            "is too large",
        ),
        (
            ("create", "db.u", "id long", "--partition-by", "truncate(id, 2147483648)"),
            "is too large",
        ),
    ],
)
def test_names_and_numbers_have_limits(
    lake: CommandLine, line: tuple[str, ...], message: str
) -> None:
    load(lake, 1)
    result = lake("--json", *line)
    assert result.exit_code == 2, result
    assert message in json.loads(result.stdout)["error"]["message"]
