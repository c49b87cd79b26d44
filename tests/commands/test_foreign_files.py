"""Data files that others wrote: timestamps as INT96, wrong figures in their entries, features that lake lacks."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)
from table_support import make_table, open_session

from lake.core.table.commit import commit_snapshot
from lake.core.table.files import DataFile
from lake.core.table.operations import AppendFiles

TIMES = [
    datetime.datetime(1, 1, 1, 0, 0, 0, 1),
    datetime.datetime(1500, 3, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    None,
    datetime.datetime(2024, 2, 29, 1, 2, 3, 456_789),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


def int96_file(path: Path, times: list[Any] = TIMES) -> Path:
    """Write a file as Spark does by default, with two rows in a row group."""
    ids = range(len(times))
    kind = pa.timestamp("us")
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array(times, kind),
            "n": pa.array([{"ts": time} for time in times], pa.struct([("ts", kind)])),
            "l": pa.array([[time, None] for time in times], pa.list_(kind)),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, path, use_deprecated_int96_timestamps=True, store_schema=False, row_group_size=2
    )
    return path


def schema_of(kind: Any) -> Schema:
    """Return the columns of an INT96 file, with the ids that a file without ids gets by position."""
    return Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", kind, required=False),
        NestedField(3, "n", StructType(NestedField(5, "ts", kind, required=False)), required=False),
        NestedField(4, "l", ListType(6, kind, element_required=False), required=False),
    )


def add_files(warehouse: Path, *files: DataFile) -> None:
    """Commit entries of files to ``db.t`` as they are."""
    session = open_session(warehouse)
    table = session.table("db.t")
    commit_snapshot(session, table, AppendFiles(added=list(files)), operation_id=session.ids.uuid())


def entry(path: Path, rows: int, **figures: Any) -> DataFile:
    """Return the entry of a file."""
    return DataFile(
        path=f"file://{path}",
        spec_id=0,
        record_count=rows,
        size_bytes=path.stat().st_size,
        **figures,
    )


def rows_of(lake: CommandLine, *arguments: str) -> dict[int, Any]:
    """Return the rows that `lake scan` shows, by their ids."""
    found = lake.ok("scan", "db.t", *arguments)
    return {row.pop("id"): row for row in found["result"]["preview"]}


def expected(zone: str) -> dict[int, Any]:
    """Return the rows of an INT96 file."""
    texts = [time and time.isoformat(timespec="microseconds") + zone for time in TIMES]
    return {
        number: {"ts": text, "n": {"ts": text}, "l": [text, None]}
        for number, text in enumerate(texts)
    }


@pytest.mark.parametrize(
    ("kind", "zone"), [(TimestamptzType(), "Z"), (TimestampType(), "")], ids=["instant", "local"]
)
def test_int96_in_data_files_is_the_timestamp_of_the_table(
    lake: CommandLine, warehouse: Path, kind: Any, zone: str
) -> None:
    made = make_table(warehouse, schema=schema_of(kind))
    path = int96_file(warehouse / "db" / "t" / "data" / "spark.parquet")
    add_files(warehouse, entry(path, len(TIMES)))
    offset = "+00:00" if zone else ""

    assert made.schema().find_type("ts") == kind
    assert rows_of(lake) == expected(zone)
    assert set(rows_of(lake, "--where", f"ts < '1600-01-01T00:00:00{offset}'")) == {0, 1}
    assert set(rows_of(lake, "--where", f"ts > '2024-01-01T00:00:00{offset}'")) == {4, 5}
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    assert rows_of(lake) == expected(zone)


def test_int96_in_data_files_is_replaced_by_an_upsert(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse, schema=schema_of(TimestamptzType()))
    path = int96_file(warehouse / "db" / "t" / "data" / "spark.parquet")
    add_files(warehouse, entry(path, len(TIMES)))
    changed = int96_file(warehouse.parent / "changed.parquet", TIMES[4:])

    lake.ok("ingest", "db.t", changed, "--upsert", "--key", "id")

    rows = expected("Z")
    assert rows_of(lake) == {**rows, 0: rows[4], 1: rows[5]}


@pytest.mark.parametrize("partition", ["day(ts)", "hour(ts)", "ts"])
def test_int96_sources_become_instants(lake: CommandLine, warehouse: Path, partition: str) -> None:
    source = int96_file(warehouse.parent / "spark.parquet")

    lake.ok("ingest", "db.t", source, "--create", "--partition-by", partition)
    lake.ok("compact", "db.t", "--rewrite-all")

    assert open_session(warehouse).table("db.t").schema.find_type("n.ts") == TimestamptzType()
    assert rows_of(lake) == expected("Z")


def test_int96_sources_fit_a_column_of_local_times(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse, schema=schema_of(TimestampType()))

    lake.ok("ingest", "db.t", int96_file(warehouse.parent / "spark.parquet"))

    assert rows_of(lake) == expected("")


def test_int96_is_refused_for_other_types(lake: CommandLine, warehouse: Path) -> None:
    make_table(
        warehouse,
        schema=Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "ts", IntegerType(), required=False),
        ),
    )
    path = int96_file(warehouse / "db" / "t" / "data" / "spark.parquet")

    source = lake("--json", "ingest", "db.t", path, "--evolve")
    add_files(warehouse, entry(path, len(TIMES)))
    scan = lake("--json", "scan", "db.t")

    assert source.exit_code == scan.exit_code == 7
    assert "ts as INT96" in source.json()["error"]["message"]
    assert "is INT96, the table has int" in scan.json()["error"]["message"]
