"""JSON in which a field has values of two types: with `--rejects`, rows are set aside, and nothing stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table

# Two rows that do not go together, and the type that the first one gives a new column.
PAIRS = [
    ('"x"', "5", "string"),
    ("5", '"x"', "long"),
    ("true", "5", "boolean"),
    ('{"a": 1}', "[1]", "struct"),
    ("[1]", '{"a": 1}', "list"),
    ("[1]", '["x"]', "list"),
    ('{"a": 1}', '{"a": "x"}', "struct"),
    ('{"a": {"b": 1}}', '{"a": {"b": [1]}}', "struct"),
    ("0.5", "1e400", "double"),
    ("0.5", "1" + "0" * 400, "double"),
    ("0.5", "-1e999", "double"),
    ('"x"', "null", None),
    ("1", "0.5", None),
]


@pytest.fixture(autouse=True)
def _inline(lake: CommandLine) -> None:
    lake.engine = "inline"


def lines(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def table_of(lake: CommandLine) -> Any:
    return lake.table()


def rejected(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("way", ["--create", "--evolve"])
@pytest.mark.parametrize(("first", "second", "kind"), PAIRS)
def test_a_new_column_has_the_type_of_its_first_value(
    lake: CommandLine, tmp_path: Path, way: str, first: str, second: str, kind: str | None
) -> None:
    if way == "--evolve":
        lake.ok("ingest", "db.t", lines(tmp_path / "0.json", '{"id": 0}'), "--create")
    source = lines(
        tmp_path / "in.json",
        f'{{"id": 1, "s": {first}}}',
        f'{{"id": 2, "s": {second}}}',
        '{"id": 3}',
    )
    rejects = tmp_path / "rejects.json"
    done = lake.ok("ingest", "db.t", source, way, "--rejects", rejects)

    wrong = kind is not None
    assert done["result"]["rows_rejected"] == wrong
    expected = [1, 3] if wrong else [1, 2, 3]
    assert [row["id"] for row in lake.rows(by="id") if row["id"]] == expected
    if kind is not None:
        assert str(table_of(lake).schema().find_type("s")).startswith(kind)
        (row,) = rejected(rejects)
        assert (row["_file"], row["_line"]) == (str(source), 2)
        assert json.loads(row["_row"])["id"] == 2


@pytest.mark.parametrize(("first", "second", "kind"), PAIRS[:-2])
def test_the_error_names_the_line(
    lake: CommandLine, tmp_path: Path, first: str, second: str, kind: str
) -> None:
    source = lines(
        tmp_path / "in.json", f'{{"id": 1, "s": {first}}}', f'{{"id": 2, "s": {second}}}'
    )
    failed = lake("--json", "ingest", "db.t", source, "--create")
    assert failed.exit_code == 7, failed
    error = failed.json()["error"]
    assert "line 2" in error["message"], error
    assert str(source) in error["message"]


@pytest.mark.parametrize("value", ["5", '{"a": 1}', "[1]", "1e400", "true"])
@pytest.mark.parametrize("way", [(), ("--evolve",), ("--create",)])
def test_a_column_of_the_table_keeps_its_type(
    lake: CommandLine, tmp_path: Path, way: tuple[str, ...], value: str
) -> None:
    lake.ok("ingest", "db.t", lines(tmp_path / "0.json", '{"id": 0, "s": "x"}'), "--create")
    more = '{"id": 1, "s": "y", "more": 1}' if "--evolve" in way else '{"id": 1, "s": "y"}'
    source = lines(tmp_path / "in.json", f'{{"id": 2, "s": {value}}}', more)
    failed = lake("--json", "ingest", "db.t", source, *way)
    assert failed.exit_code == 7, failed
    assert str(source) in failed.json()["error"]["message"]
    done = lake.ok("ingest", "db.t", source, *way, "--rejects", tmp_path / "rejects.json")
    assert done["result"]["rows_rejected"] == 1
    assert [row["s"] for row in lake.rows(by="id")] == ["x", "y"]


@pytest.mark.parametrize("way", ["--create", "--evolve"])
def test_of_two_files_the_first_one_decides(lake: CommandLine, tmp_path: Path, way: str) -> None:
    if way == "--evolve":
        lake.ok("ingest", "db.t", lines(tmp_path / "0.json", '{"id": 0}'), "--create")
    first = lines(tmp_path / "a.json", '{"id": 1, "s": "x", "n": 1, "at": "2026-01-01T00:00:00"}')
    second = lines(
        tmp_path / "b.json", '{"id": 2, "s": 5}', '{"id": 3, "n": 0.5}', '{"id": 4, "at": "x"}'
    )
    failed = lake("--json", "ingest", "db.t", first, second, way)
    assert failed.exit_code == 7
    assert "b.json" in failed.json()["error"]["message"]
    rejects = tmp_path / "rejects.json"
    lake.ok("ingest", "db.t", first, second, way, "--rejects", rejects)
    assert [row["id"] for row in lake.rows(by="id") if row["id"]] == [1, 3]
    assert [(row["_file"], row["_line"]) for row in rejected(rejects)] == [
        (str(second), 1),
        (str(second), 3),
    ]


@pytest.mark.parametrize(
    "row", ['{"s": "x"}', '{"id": null, "s": "x"}', '{"id": 2, "s": "x", "unknown": 1}']
)
def test_rows_that_lack_or_add_columns_are_set_aside_too(
    lake: CommandLine, tmp_path: Path, row: str
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "s", StringType())
    )
    make_table(lake.warehouse, "db.t", schema)
    source = lines(tmp_path / "in.json", row)
    rejects = ("--rejects", tmp_path / "rejects.json", "--max-rejects", 1)
    done = lake.ok("ingest", "db.t", source, *rejects)
    assert done["result"]["rows_rejected"] == 1
    assert lake.rows(by="id") == []


@pytest.mark.parametrize("way", ["--create", "--evolve"])
def test_a_watch_goes_on_after_such_a_file(lake: CommandLine, tmp_path: Path, way: str) -> None:
    lake.ok("ingest", "db.t", lines(tmp_path / "0.json", '{"id": 0}'), "--create")
    inbox = tmp_path / "in"
    inbox.mkdir()
    lines(inbox / "1.json", '{"id": 1, "s": "x"}', '{"id": 2, "s": 5}')
    lines(inbox / "2.json", '{"id": 3, "s": 5}', '{"id": {}, "s": "x"}', '{"id": 4, "s": "y"}')
    command = ("ingest", "db.t", "--watch", inbox, "--stream", "s", "--state", tmp_path / "state")
    options = ("--once", "--settle", "0s", "--rejects", tmp_path / "rejects.json", way)
    lake.ok(*command, *options)
    found = [1, 4] if way == "--evolve" else []
    assert [row["id"] for row in lake.rows(by="id") if row["id"]] == found


def test_a_routed_load_goes_on_after_such_rows(lake: CommandLine, tmp_path: Path) -> None:
    source = lines(
        tmp_path / "in.json",
        '{"kind": "t", "id": 1, "s": "x"}',
        '{"kind": "t", "id": 2, "s": [5]}',
        '{"kind": "t", "id": 3, "s": "y"}',
    )
    command = ("ingest", "db.{kind}", source, "--route", "kind", "--create")
    failed = lake("--json", *command)
    assert (failed.exit_code, "line 2" in failed.stdout) == (7, True)
    lake.ok(*command, "--rejects", tmp_path / "rejects.json")
    assert [row["id"] for row in lake.rows(by="id")] == [1, 3]
