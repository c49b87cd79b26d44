"""`lake ingest --route` with a change log: each table has the rows that the changes of its value describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.change_logs import Model, Row, shown, write_log
from support.tables.csv_files import csv_changes
from support.tables.iceberg_tables import make_table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType(), required=True),
    NestedField(3, "value", LongType(), required=True),
    identifier_field_ids=[1],
)
UPSERT = ("--changes-column", "op", "--changes-mode", "upsert")
RETRACT = ("--changes-column", "op", "--changes-mode", "retract")


def routed(lake: CommandLine, log: Path, *words: object) -> dict[str, Any]:
    return lake.ok("ingest", "db.{part}", log, "--route", "part", *words)


def _renamed(row: Row) -> Row:
    """Return a row whose part is a table's name."""
    return {**row, "part": {"x": "x", "y z": "y", "é": "z"}[row["part"]]}


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", engine="inline")


@pytest.mark.parametrize(
    "existing",
    [pytest.param(True, marks=pytest.mark.slow), False],
    ids=["existing", "created"],
)
def test_rows_that_a_retracting_log_moves_leave_their_table(
    lake: CommandLine, tmp_path: Path, existing: bool
) -> None:
    model = Model(["id"], seed=2)
    if existing:
        for part in "xyz":
            make_table(lake.warehouse, f"db.{part}", SCHEMA)
    for number, suffix in enumerate((".parquet", ".csv")):
        changes = [_renamed(row) for row in model.retractions(100)]
        log = write_log(tmp_path / f"log-{number}{suffix}", changes)
        document = routed(lake, log, *RETRACT, "--key", "id", "--create", "--run-id", str(number))

        assert document["result"]["rows_read"] == len(changes)
        again = routed(lake, log, *RETRACT, "--key", "id", "--create", "--run-id", str(number))
        assert again["status"] == "nothing-to-do"
    expected = [_renamed(row) for row in model.rows.values()]
    for part in sorted({row["part"] for row in expected}):
        own = [row for row in expected if row["part"] == part]
        assert shown(lake.scanned(table=f"db.{part}")) == shown(own)


def test_upserts_and_deletes_by_key_reach_the_table_of_their_value(
    lake: CommandLine, tmp_path: Path
) -> None:
    first = csv_changes(tmp_path / "a.csv", "+I,1,x,1", "+I,1,y,2", "+I,2,x,3")
    routed(lake, first, *UPSERT, "--key", "id", "--create")
    make_table(lake.warehouse, "db.z", SCHEMA)

    done = routed(
        lake,
        csv_changes(tmp_path / "b.csv", "+U,1,x,9", "-D,1,y,", "-D,5,z,"),
        *UPSERT,
        "--key",
        "id",
    )

    assert {row["id"]: row["value"] for row in lake.scanned(table="db.x")} == {1: 9, 2: 3}
    assert lake.scanned(table="db.y") == []
    assert [item["table"] for item in done["result"]["tables"]] == ["db.x", "db.y", "db.z"]
    assert "op" not in lake.table("db.x").schema().column_names


@pytest.mark.parametrize(
    ("line", "words", "part"),
    [
        ("+X,1,y,1", (), "+X"),
        (",1,y,1", (), "NULL"),
        ("+I,1,y,", (), "required column value"),
        ("-D,,y,1", (), "key column id"),
        ("+I,1,,1", (), "NULL in column part"),
    ],
    ids=["kind", "no kind", "no value", "no key", "no table"],
)
def test_a_bad_change_is_named_before_any_table_is_changed(
    lake: CommandLine, tmp_path: Path, line: str, words: tuple[str, ...], part: str
) -> None:
    for name in "xy":
        make_table(lake.warehouse, f"db.{name}", SCHEMA)
    log = csv_changes(tmp_path / "log.csv", "+I,3,x,1", line)

    result = lake("--json", "ingest", "db.{part}", log, "--route", "part", *UPSERT, *words)

    assert result.exit_code == 7, result
    assert part in result.json()["error"]["message"]
    assert str(log) in result.json()["error"]["message"]
    assert not lake.table("db.x").snapshots()


def test_changes_without_a_key_are_set_aside_with_their_line(
    lake: CommandLine, tmp_path: Path
) -> None:
    for name in "xy":
        make_table(lake.warehouse, f"db.{name}", SCHEMA)
    log = csv_changes(tmp_path / "log.csv", "+I,3,x,1", "+I,,x,2", "+I,4,no-name,2", "+I,5,y,2")
    rejects = tmp_path / "rejects.json"

    document = routed(lake, log, *UPSERT, "--max-rejects", "99", "--rejects", rejects)

    assert document["result"]["rows_rejected"] == 2
    assert [json.loads(one)["_line"] for one in rejects.read_text().splitlines()] == [3, 4]
    assert [row["id"] for row in lake.scanned(table="db.x")] == [3]
    assert [row["id"] for row in lake.scanned(table="db.y")] == [5]


def test_a_log_without_the_column_of_row_kinds_is_refused(
    lake: CommandLine, tmp_path: Path
) -> None:
    log = csv_changes(tmp_path / "log.csv", "+I,3,x,1")
    words = ("--changes-column", "kind", "--changes-mode", "upsert", "--key", "id", "--create")

    result = lake("--json", "ingest", "db.{part}", log, "--route", "part", *words)

    assert (result.exit_code, "kind" in result.json()["error"]["message"]) == (7, True)
