"""`lake ingest` of ORC and Avro files, into tables of all formats."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table

WHEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)
ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": None if number % 3 == 0 else f"n{number}",
        "day": datetime.date(1969, 12, 30) + datetime.timedelta(days=number),
        "at": WHEN,
        "price": decimal.Decimal(number) / 100,
        "tags": None if number % 4 == 0 else ["a", None],
        "part": None if number % 5 == 0 else {"x": number, "y": "y"},
        "map": [("k", number)],
    }
    for number in range(10)
]
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("part", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
AVRO: list[tuple[str, Any]] = [
    ("id", "long"),
    ("name", "string"),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    (
        "part",
        {
            "type": "record",
            "name": "part",
            "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}],
        },
    ),
    ("map", {"type": "map", "values": "long"}),
]


def source(folder: Path, kind: str) -> Path:
    """Write the rows as another tool would."""
    path = folder / f"source.{kind}"
    if kind == "orc":
        orc.write_table(pa.Table.from_pylist(ROWS, ARROW), str(path))
        return path
    fields = [{"name": name, "type": ["null", of]} for name, of in AVRO]
    rows = [{**row, "map": dict(row["map"])} for row in ROWS]
    with path.open("wb") as sink:
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, rows, "deflate")
    return path


def rows_of(lake: CommandLine, folder: Path, table: str) -> list[dict[str, Any]]:
    path = folder / "rows.arrow"
    lake.ok("scan", table, "--output", path, "--replace")
    found: list[dict[str, Any]] = pa.ipc.open_file(path).read_all().to_pylist()
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize(("kind", "table"), [("orc", "orc"), ("avro", "avro"), ("orc", "parquet")])
def test_a_table_is_created_from_the_source_and_upserted(
    lake: CommandLine, warehouse: Path, tmp_path: Path, kind: str, table: str
) -> None:
    path = source(tmp_path, kind)
    wanted = ["--property", f"write.format.default={table}"]
    plan = lake.ok("ingest", "db.t", path, "--create", *wanted, "--dry-run")
    assert plan["status"] == "dry-run"
    lake.ok("ingest", "db.t", path, "--create", *wanted)

    assert rows_of(lake, tmp_path, "db.t") == ROWS
    loaded = pyiceberg_table(warehouse)
    assert [str(item.field_type) for item in loaded.schema().fields[:5]] == [
        "long",
        "string",
        "date",
        "timestamp",
        "decimal(9, 2)",
    ]

    done = lake.ok("ingest", "db.t", path, "--upsert", "--key", "id")
    assert done["result"]["rows_updated"] == len(ROWS)
    assert rows_of(lake, tmp_path, "db.t") == ROWS
    if table != "avro":
        # PyIceberg reads no rows out of Avro.
        found = loaded.refresh().scan().to_arrow().to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == ROWS
    lake.ok("ingest", "db.t", path, "--upsert", "--key", "id", "--deletes", "equality")
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    assert rows_of(lake, tmp_path, "db.t") == ROWS
    lake.ok("ingest", "db.copy", "--from-table", "db.t", "--create")
    assert rows_of(lake, tmp_path, "db.copy") == ROWS
    data = {file.suffix for file in (warehouse / "db" / "t" / "data").iterdir()}
    assert data == {f".{table}"}


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_the_given_format_counts_where_the_name_says_another(
    lake: CommandLine, tmp_path: Path, kind: str
) -> None:
    path = source(tmp_path, kind).rename(tmp_path / "rows.bin")

    lake.ok("ingest", "db.t", path, "--create", "--format", kind)
    assert rows_of(lake, tmp_path, "db.t") == ROWS
    assert lake("ingest", "db.t", path).exit_code == 7
    wrong = "avro" if kind == "orc" else "orc"
    result = lake("--json", "ingest", "db.t", path, "--format", wrong)
    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "corrupt")


def test_deletes_are_of_their_own_format(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = source(tmp_path, "orc")
    wanted = ["write.format.default=avro", "write.delete.format.default=orc"]
    options = [part for text in wanted for part in ("--property", text)]
    lake.ok("ingest", "db.t", path, "--create", *options)
    lake.ok("ingest", "db.t", path, "--upsert", "--key", "id")

    names = {file.name.split("-")[-1] for file in (warehouse / "db" / "t" / "data").iterdir()}
    assert "deletes.orc" in names
    assert all(name == "deletes.orc" or name.endswith(".avro") for name in names)
    assert rows_of(lake, tmp_path, "db.t") == ROWS
