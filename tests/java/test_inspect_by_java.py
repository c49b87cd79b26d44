"""The metadata tables of `lake inspect` have the rows of Iceberg's."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer

pytestmark = pytest.mark.java

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_PLAIN = (
    *("content", "file_path", "file_format", "spec_id", "record_count", "file_size_in_bytes"),
    *("split_offsets", "equality_ids", "sort_order_id"),
    *("referenced_data_file", "content_offset", "content_size_in_bytes"),
)


@pytest.fixture(params=[2, 3])
def made(warehouse: Path, request: pytest.FixtureRequest) -> CommandLine:
    """A table with four partition specs, one of them unpartitioned, and position and equality deletes."""
    lake = CommandLine(warehouse, engine="inline")
    rows = warehouse.parent / "rows.csv"
    rows.write_text(
        "id,day,name,x\n1,2026-01-30,a b/c,0.5\n2,2026-01-30,,NaN\n3,2026-01-31,ü,\n4,,d,-1\n"
    )
    few = warehouse.parent / "few.csv"
    few.write_text("id,day,name,x\n2,2026-01-30,new,1.5\n")
    version = ("--property", f"format-version={request.param}")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "day", *version)
    lake.ok("ingest", "db.t", few, "--upsert", "--key", "id", "--deletes", "position")
    lake.ok("ingest", "db.t", few, "--upsert", "--key", "id,day", "--deletes", "equality")
    lake.ok("alter", "db.t", "--partition-by", "truncate(name, 2), bucket(id, 4)")
    lake.ok("ingest", "db.t", rows)
    lake.ok("alter", "db.t", "--partition-by", "day, bucket(id, 4)")
    lake.ok("ingest", "db.t", rows)
    lake.ok("alter", "db.t", "--partition-by", "")
    lake.ok("ingest", "db.t", rows)
    return lake


def rows_of(lake: CommandLine, kind: str, *more: str) -> list[dict[str, Any]]:
    out = lake.warehouse.parent / f"{kind}.parquet"
    lake.ok("inspect", "db.t", kind, "--output", out, "--replace", *more)
    return pq.read_table(out).to_pylist()


def plain(value: Any) -> Any:
    """Return a value as Spark's `to_json` writes it: without the fields that are NULL."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, date):
        return value.isoformat()
    return value


def file_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of files in the form of `files_by_java`."""
    found = {name: row[name] for name in _PLAIN}
    found["partition"] = plain(row["partition"])
    for name in (*_COUNTS, *_BOUNDS):
        pairs = row[name]
        found[name] = pairs and sorted(
            f"{key}={value.hex().upper() if isinstance(value, bytes) else value}"
            for key, value in pairs
        )
    return found


def files_by_java(
    java: JavaPeer, warehouse: Path, name: str, prefix: str = "", more: str = ""
) -> list[dict[str, Any]]:
    def pairs(column: str, value: str) -> str:
        listed = f"transform(map_entries({prefix}{column}), e -> concat(e.key, '=', {value}))"
        return f"array_sort({listed}) AS {column}"

    columns = [f"{prefix}{column} AS {column}" for column in _PLAIN]
    columns += [f"to_json({prefix}partition) AS partition"]
    columns += [pairs(column, "e.value") for column in _COUNTS]
    columns += [pairs(column, "hex(e.value)") for column in _BOUNDS]
    statement = f"SELECT {more} {', '.join(columns)} FROM {{c}}.db.t{name}"
    found = java.sql(warehouse, statement)
    return [{**row, "partition": json.loads(row["partition"])} for row in found]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.slow
def test_deleted_positions_are_those_of_java(made: CommandLine, java: JavaPeer) -> None:
    found = rows_of(made, "deletes")
    assert len(found) >= 1
    columns = ", ".join(name for name in found[0] if name not in {"partition", "row"})
    statement = f"SELECT to_json(partition) AS partition, row.id AS row, {columns}"
    by_java = java.sql(made.warehouse, f"{statement} FROM {{c}}.db.t.position_deletes")
    assert in_order([{**row, "partition": plain(row["partition"])} for row in found]) == in_order(
        [{**row, "partition": json.loads(row["partition"])} for row in by_java]
    )
    described = java.sql(made.warehouse, "DESCRIBE {c}.db.t.position_deletes")
    names = [row["col_name"] for row in described]
    assert names[: len(found[0])] == list(found[0])
    assert all(name.startswith("#") for name in names[len(found[0]) :][:1])


@pytest.mark.slow
def test_files_entries_manifests_and_partitions_are_those_of_java(
    made: CommandLine, java: JavaPeer
) -> None:
    warehouse = made.warehouse
    for kind, name in (
        ("files", ".files"),
        ("data-files", ".data_files"),
        ("delete-files", ".delete_files"),
    ):
        expected = files_by_java(java, warehouse, name)
        assert len(expected) >= 2
        assert in_order([file_of(row) for row in rows_of(made, kind)]) == in_order(expected)

    entry = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
    expected = files_by_java(java, warehouse, ".entries", "data_file.", f"{', '.join(entry)},")
    found = [
        {**{name: row[name] for name in entry}, **file_of(row["data_file"])}
        for row in rows_of(made, "entries")
    ]
    assert in_order(found) == in_order(expected)

    manifests = rows_of(made, "manifests")
    columns = ", ".join(name for name in manifests[0])
    assert in_order(manifests) == in_order(
        java.sql(warehouse, f"SELECT {columns} FROM {{c}}.db.t.manifests")
    )

    partitions = rows_of(made, "partitions")
    columns = ", ".join(name for name in partitions[0] if name != "partition")
    columns = columns.replace("last_updated_at", "unix_micros(last_updated_at) AS last_updated_at")
    by_java = java.sql(
        warehouse, f"SELECT to_json(partition) AS partition, {columns} FROM {{c}}.db.t.partitions"
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    own = [
        {
            **row,
            "partition": plain(row["partition"]),
            "last_updated_at": round((row["last_updated_at"] - epoch).total_seconds() * 1e6),
        }
        for row in partitions
    ]
    assert in_order(own) == in_order(
        [{**row, "partition": json.loads(row["partition"])} for row in by_java]
    )
