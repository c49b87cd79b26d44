"""A load by key from a source that lacks columns of the table: it never replaces values that it was not given."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine, Result
from support.tables.csv_files import csv
from support.tables.iceberg_tables import make_table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "note", StringType(), required=False),
    NestedField(4, "price", LongType(), required=False),
    identifier_field_ids=[1],
)
ROW = {"id": 1, "part": "a", "note": "kept", "price": 7}
UPSERT = ("--upsert", "--key", "id")
LOG = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id")


@pytest.fixture(autouse=True)
def _table(lake: CommandLine, tmp_path: Path) -> None:
    lake.engine = "inline"
    make_table(lake.warehouse, "db.t", SCHEMA)
    lake.ok("ingest", "db.t", json_lines(tmp_path / "first.json", ROW))


def json_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(lake: CommandLine) -> list[dict[str, Any]]:
    """Return the rows as PyIceberg reads them; it does not read equality deletes."""
    table = lake.table()
    with suppress(ValueError):
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    rows: list[dict[str, Any]] = lake.ok("scan", "db.t")["result"]["preview"]
    return sorted(rows, key=lambda row: row["id"])


def source_of(kind: str, folder: Path) -> Path:
    """Return a file with the columns id and price of a new price."""
    if kind == "csv":
        return csv(folder / "new.csv", "id,price", "1,8")
    if kind == "json":
        return json_lines(folder / "new.json", {"id": 1, "price": 8})
    path = folder / "new.parquet"
    pq.write_table(pa.table({"id": [1], "price": [8]}), path)
    return path


def refused(result: Result, *columns: str) -> dict[str, str]:
    """Return the error of a load that was refused because of missing columns."""
    assert result.exit_code == 7, result
    error: dict[str, str] = result.json()["error"]
    assert all(name in error["message"] for name in columns), error
    assert "--missing default" in error["hint"]
    return error


@pytest.mark.parametrize("deletes", ["position", "equality", "copy-on-write"])
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_an_upsert_without_columns_of_the_table_is_refused(
    lake: CommandLine, tmp_path: Path, kind: str, deletes: str
) -> None:
    command = ("ingest", "db.t", source_of(kind, tmp_path), *UPSERT, "--deletes", deletes)

    error = refused(lake("--json", *command, "--dry-run"), "part", "note")
    assert "--merge partial-update" in error["hint"]
    refused(lake("--json", *command), "part", "note")
    assert rows_of(lake) == [ROW]


def test_both_ways_on_do_what_they_say(lake: CommandLine, tmp_path: Path) -> None:
    source = source_of("csv", tmp_path)

    lake.ok("ingest", "db.t", source, *UPSERT, "--merge", "partial-update")
    assert rows_of(lake) == [{**ROW, "price": 8}]
    done = lake.ok("ingest", "db.t", source, *UPSERT, "--missing", "default")
    assert rows_of(lake) == [{"id": 1, "part": None, "note": None, "price": 8}]
    assert done["plan"]["filled_columns"] == ["note", "part"]


def test_first_row_adds_only_new_rows_so_that_columns_may_be_missing(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = csv(tmp_path / "new.csv", "id,price", "1,8", "2,9")
    lake.ok("ingest", "db.t", source, *UPSERT, "--merge", "first-row")
    assert rows_of(lake) == [ROW, {"id": 2, "part": None, "note": None, "price": 9}]


def test_one_of_several_files_without_a_column_is_enough(lake: CommandLine, tmp_path: Path) -> None:
    whole = csv(tmp_path / "a.csv", "id,part,note,price", "2,a,x,1")
    result = lake("--json", "ingest", "db.t", whole, source_of("csv", tmp_path), *UPSERT)
    error = refused(result, "part", "note")
    assert "new.csv" in error["message"]


def test_each_row_of_json_must_have_the_columns(lake: CommandLine, tmp_path: Path) -> None:
    whole = {"id": 2, "part": None, "note": None, "price": None}
    source = json_lines(tmp_path / "new.json", whole, {"id": 1, "note": "x", "price": 8})

    error = refused(lake("--json", "ingest", "db.t", source, *UPSERT), "part")
    assert "line 2" in error["message"]
    rejects = tmp_path / "rejects.json"
    done = lake.ok("ingest", "db.t", source, *UPSERT, "--rejects", rejects)
    assert done["result"]["rows_rejected"] == 1
    assert "part" in json.loads(rejects.read_text())["_reason"]
    assert rows_of(lake) == [ROW, whole]


def test_a_name_inside_another_value_is_not_a_column(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "new.json"
    source.write_text('{"id": 1, "part": "\\"note\\": 1", "\\u0070rice": 8}\n')
    error = refused(lake("--json", "ingest", "db.t", source, *UPSERT), "note")
    assert "price" not in error["message"]


def test_columns_that_a_load_adds_may_be_missing_in_some_rows(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = json_lines(tmp_path / "new.json", {**ROW, "more": 1}, {**ROW, "id": 2})
    lake.ok("ingest", "db.t", source, *UPSERT, "--evolve")
    assert rows_of(lake) == [{**ROW, "more": 1}, {**ROW, "id": 2, "more": None}]


@pytest.mark.parametrize("deletes", ["equality", "position", "copy-on-write"])
def test_a_change_log_without_columns_is_refused_unless_it_only_deletes(
    lake: CommandLine, tmp_path: Path, deletes: str
) -> None:
    ways = (*LOG, "--deletes", deletes)
    log = csv(tmp_path / "log.csv", "id,price,op", "1,8,+U")
    refused(lake("--json", "ingest", "db.t", log, *ways), "part", "note")
    lines = json_lines(tmp_path / "log.json", {"id": 5, "op": "-D"}, {**ROW, "id": 1, "op": "+U"})
    lake.ok("ingest", "db.t", lines, *ways)
    assert rows_of(lake) == [ROW]
    lines = json_lines(tmp_path / "log2.json", {"id": 1, "price": 8, "op": "+U"})
    refused(lake("--json", "ingest", "db.t", lines, *ways), "part")

    lake.ok("ingest", "db.t", log, *ways, "--missing", "default")
    assert rows_of(lake) == [{"id": 1, "part": None, "note": None, "price": 8}]
    lake.ok("ingest", "db.t", csv(tmp_path / "end.csv", "id,op", "1,-d"), *ways)
    assert rows_of(lake) == []


def test_rows_of_a_table_without_columns_are_refused(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("ingest", "db.source", source_of("csv", tmp_path), "--create")
    command = ("ingest", "db.t", "--from-table", "db.source", *UPSERT)
    refused(lake("--json", *command), "part", "note")
    refused(lake("--json", *command, "--follow", "--stream", "s", "--once"), "part", "note")
    assert rows_of(lake) == [ROW]
    lake.ok(*command, "--missing", "default")


def test_a_routed_upsert_without_columns_is_refused(lake: CommandLine, tmp_path: Path) -> None:
    whole = csv(tmp_path / "a.csv", "id,part,note,price", "2,t,x,1")
    part = csv(tmp_path / "b.csv", "id,part,price", "1,t,8")
    files = (whole, part, "--union-columns")
    command = ("ingest", "db.{part}", *files, "--route", "part", *UPSERT)
    refused(lake("--json", *command), "note")
    rejects = tmp_path / "rejects.csv"
    done = lake.ok(*command, "--rejects", rejects)
    assert done["result"]["rows_rejected"] == 1
    assert [row["note"] for row in rows_of(lake)] == ["kept", "x"]

    alone = lake("--json", "ingest", "db.{part}", part, "--route", "part", *UPSERT)
    assert alone.exit_code == 7, alone
    lake.ok("ingest", "db.{part}", part, "--route", "part", *UPSERT, "--missing", "default")
    assert rows_of(lake)[0] == {"id": 1, "part": "t", "note": None, "price": 8}


def test_a_watch_refuses_such_a_file_or_sets_it_aside(lake: CommandLine, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    source_of("csv", inbox)
    command = ("ingest", "db.t", "--watch", inbox, "--stream", "s", "--state", tmp_path / "state")
    options = (*UPSERT, "--once", "--settle", "0s")
    refused(lake("--json", *command, *options), "part", "note")
    done = lake("--json", *command, *options, "--bad-files", tmp_path / "bad")
    assert (done.exit_code, done.json()["result"]["files_set_aside"]) == (6, 1)
    assert rows_of(lake) == [ROW]


def test_the_property_that_makes_a_load_an_upsert_keeps_values_too(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("alter", "db.t", "--set", "write.upsert.enabled=true")
    source = csv(tmp_path / "new.csv", "id,part,price", "1,a,8")
    refused(lake("--json", "ingest", "db.t", source), "note")
    lake.ok("ingest", "db.t", source, "--missing", "default")
    assert rows_of(lake) == [{**ROW, "note": None, "price": 8}]


def test_partial_updates_take_json_columns_that_begin_late_or_vary(
    lake: CommandLine, tmp_path: Path
) -> None:
    """The columns of JSON are not known from its first lines, which may also be of types that do not go together."""
    source = tmp_path / "new.json"
    lines = [{"id": 2, "note": "x" * 1000}] * 9000 + [{"id": 1, "price": 8}]
    json_lines(source, *lines)
    lake.ok("ingest", "db.t", source, *UPSERT, "--merge", "partial-update")
    assert rows_of(lake)[0] == {**ROW, "price": 8}
    lake.ok("alter", "db.t", "--add-column", "rate double")
    json_lines(source, {"id": 1, "rate": 0.5}, {"id": 3, "rate": "NaN"})
    lake.ok("ingest", "db.t", source, *UPSERT, "--merge", "partial-update")
    assert rows_of(lake)[0] == {**ROW, "price": 8, "rate": 0.5}


def test_null_overwrites_needs_the_column_in_each_row(lake: CommandLine, tmp_path: Path) -> None:
    source = json_lines(tmp_path / "new.json", {"id": 2, "note": None}, {"id": 1, "price": 8})
    command = ("ingest", "db.t", source, *UPSERT, "--merge", "partial-update")
    result = lake("--json", *command, "--null-overwrites", "note")
    assert result.exit_code == 7, result
    assert "line 2" in result.json()["error"]["message"]
    assert rows_of(lake) == [ROW]


def test_the_two_ways_contradict_each_other(lake: CommandLine, tmp_path: Path) -> None:
    command = ("ingest", "db.t", source_of("csv", tmp_path), *UPSERT, "--missing", "default")
    assert lake(*command, "--merge", "partial-update").exit_code == 2
    assert lake(*command[:-1], "null").exit_code == 2


def test_an_append_says_which_columns_were_filled(lake: CommandLine, tmp_path: Path) -> None:
    source = csv(tmp_path / "new.csv", "id,price", "2,8")
    done = lake.ok("ingest", "db.t", source)
    assert done["plan"]["filled_columns"] == ["note", "part"]
    shown = lake("ingest", "db.t", source).stdout
    assert "note and part are NULL: the source lacks them" in " ".join(shown.split()), shown


def test_a_key_whose_name_has_a_dot_is_not_a_part_of_another_column(
    lake: CommandLine, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({"a": [1], "a.b": [10], "v": ["x"]}), old)
    pq.write_table(pa.table({"a.b": [10], "v": ["y"]}), new)
    lake.ok("ingest", "db.dots", old, "--create")

    refused = lake("--json", "ingest", "db.dots", new, "--upsert", "--key", "a.b")

    assert refused.exit_code == 7
    assert lake.rows("db.dots") == [{"a": 1, "a.b": 10, "v": "x"}]
