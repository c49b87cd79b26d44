"""Columns that a source lacks, in tables whose write defaults Iceberg Java set: Java judges each kind of load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

# Name, type, initial default, write default. Spark has no type for times and nanoseconds.
COLUMNS = [
    ["i", "int", "42", "43"],
    ["l", "long", "1", "1099511627776"],
    ["f", "float", "0.5", "1.5"],
    ["g", "double", "0.5", "-2.25"],
    ["b", "boolean", "false", "true"],
    ["s", "string", '"old"', '"dflt \\"\\u00e9\\""'],
    ["de", "decimal(9,2)", '"0.00"', '"-1.50"'],
    ["da", "date", '"1970-01-01"', '"1969-12-31"'],
    ["ts", "timestamp", '"1970-01-01T00:00:00"', '"2020-01-02T03:04:05.123456"'],
    ["tz", "timestamptz", '"1970-01-01T00:00:00+00:00"', '"1960-01-02T03:04:05.5+00:00"'],
    [
        "u",
        "uuid",
        '"00000000-0000-0000-0000-000000000000"',
        '"f79c3e09-677c-4bbd-a479-3f349cb785e7"',
    ],
    ["fx", "fixed[3]", '"000000"', '"0001ff"'],
    ["bi", "binary", '""', '"00ff"'],
]
NAMES = [name for name, *_ in COLUMNS]
SHOWN = ", ".join(f"cast(`{name}` AS string) `{name}`" for name in NAMES)


def made(warehouse: Path, java: JavaPeer) -> dict[str, Any]:
    """Let Java make the table and insert row 1 without the columns; return what it stored in them."""
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, p STRUCT<x: INT>) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3')",
    )
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (0, NULL)")
    java.add_columns(warehouse, "db.t", [*COLUMNS, ["p.y", "int", "8", "9"]])
    java.sql(warehouse, "INSERT INTO {c}.db.t (id) VALUES (1)")
    return read(warehouse, java)[1]


def read(warehouse: Path, java: JavaPeer) -> dict[int, dict[str, Any]]:
    rows = java.sql(warehouse, f"SELECT id, {SHOWN} FROM {{c}}.db.t")
    return {row.pop("id"): row for row in rows}


def parquet(folder: Path, name: str, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def test_each_kind_of_load_stores_what_java_stores(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    expected = made(warehouse, java)
    nulls = dict.fromkeys(NAMES)
    lines = tmp_path / "n.json"
    lines.write_text(json.dumps({"id": 3, **nulls}) + "\n" + '{"id": 4}\n')
    (tmp_path / "c.csv").write_text("id\n5\n")

    lake.ok("ingest", "db.t", parquet(tmp_path, "a.parquet", id=[2]))
    lake.ok("ingest", "db.t", lines)
    lake.ok("ingest", "db.t", tmp_path / "c.csv")
    replaced = parquet(tmp_path, "u.parquet", id=[0, 6])
    lake.ok("ingest", "db.t", replaced, "--upsert", "--key", "id", "--missing", "default")
    for number, mode in ((7, "upsert"), (8, "retract")):
        log = parquet(tmp_path, f"{mode}.parquet", id=[number], op=["+I"])
        marks = (
            "--changes-column",
            "op",
            "--changes-mode",
            mode,
            "--key",
            "id",
            "--missing",
            "default",
        )
        lake.ok("ingest", "db.t", log, *marks)
    wider = parquet(tmp_path, "e.parquet", id=[9], more=["new"])
    lake.ok("ingest", "db.t", wider, "--evolve")
    java.sql(warehouse, "INSERT INTO {c}.db.t (id) VALUES (10)")

    found = read(warehouse, java)
    assert found == {number: expected for number in range(11) if number != 3} | {3: nulls}
    assert expected["s"] == 'dflt "é"'
    more = java.sql(warehouse, "SELECT id FROM {c}.db.t WHERE more IS NOT NULL")
    assert more == [{"id": 9}]


def test_a_field_that_a_sources_struct_lacks_is_filled(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    made(warehouse, java)
    given = pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))

    lake.ok("ingest", "db.t", parquet(tmp_path, "p.parquet", id=[2, 3], p=given))

    rows = java.sql(warehouse, "SELECT id, p.x, p.y, p IS NULL none FROM {c}.db.t WHERE id > 1")
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 2, "x": 1, "y": 9, "none": False},
        {"id": 3, "x": None, "y": None, "none": True},
    ]
