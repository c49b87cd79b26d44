"""What deletes leave of a table: the same rows in `lake scan` as in Iceberg Java."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.delete_files import commit_deletes, equality_file, position_file, vectors
from support.tables.iceberg_tables import (
    make_table,
    open_session,
    pyiceberg_catalog,
    pyiceberg_table,
)

from lake.core.data.deletes.apply import Deletes
from lake.core.data.rows.reader import ReadSettings, read_batches
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.spec.types.arrow_schema import LAST_UPDATED, ROW_ID
from lake.core.table.catalogs.catalog import Table

pytestmark = pytest.mark.java


def scan(lake: CommandLine, *options: object) -> list[dict[str, Any]]:
    result = lake("scan", "db.t", "--output", "-", "--output-format", "json", *options)
    assert result.exit_code == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    plain = [{name: plainly(value) for name, value in row.items()} for row in rows]
    return sorted(json.dumps(row, sort_keys=True) for row in plain)


def plainly(value: Any) -> Any:
    """Return what JSON has no number for as `lake scan` writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value


def same_rows(lake: CommandLine, java: JavaPeer, warehouse: Path, where: str = "") -> int:
    """Compare all rows, or those of a filter, and return how many there are."""
    options = ["--where", where] if where else []
    found = in_order(scan(lake, *options))
    clause = f" WHERE {where}" if where else ""
    assert found == in_order(java.sql(warehouse, f"SELECT * FROM {{c}}.db.t{clause}"))
    return len(found)


SMALL_GROUPS = (
    "'write.parquet.row-group-size-bytes' = '8192', 'write.parquet.page-row-limit' = '100', "
    "'write.parquet.row-group-check-min-record-count' = '100', "
    "'write.parquet.row-group-check-max-record-count' = '100'"
)


@pytest.mark.parametrize(
    ("version", "parts", "granularity"),
    [
        pytest.param(2, "", "file", marks=pytest.mark.slow),
        (2, "bucket(3, k)", "partition"),
        (3, "", "file"),
        (3, "g", "file"),
    ],
)
def test_deletes_updates_and_merges_of_spark(
    lake: CommandLine,
    warehouse: Path,
    java: JavaPeer,
    version: int,
    parts: str,
    granularity: str,
    tmp_path: Path,
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    partitioned = f"PARTITIONED BY ({parts})" if parts else ""
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t (k BIGINT, g INT, s STRING) USING iceberg {partitioned} "
        f"TBLPROPERTIES ('format-version' = '{version}', "
        "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', "
        f"'write.merge.mode' = 'merge-on-read', 'write.delete.granularity' = '{granularity}', "
        f"{SMALL_GROUPS})",
    )
    rows = "SELECT id, cast(id % 5 AS INT), concat('s', id) FROM range({}, {})"
    for start in (0, 3000):
        java.sql(warehouse, f"INSERT INTO {{c}}.db.t {rows.format(start, start + 3000)}")
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE k % 7 = 0")
    java.sql(warehouse, "UPDATE {c}.db.t SET s = 'new' WHERE k BETWEEN 2900 AND 3100")
    java.sql(
        warehouse,
        "MERGE INTO {c}.db.t t USING (SELECT id AS k FROM range(5990, 6010)) u ON t.k = u.k "
        "WHEN MATCHED AND t.k % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (k, g, s) VALUES (u.k, -1, NULL)",
    )
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE k % 11 = 0")

    assert same_rows(lake, java, warehouse) > 4000
    assert same_rows(lake, java, warehouse, "k >= 2950 AND k < 3050") > 50
    assert same_rows(lake, java, warehouse, "s = 'new' OR g = 3") > 900
    assert lake.ok("scan", "db.t", "--plan")["plan"]["delete_files"] > 1
    # The output's files, of splits of a few row groups each.
    lake.ok("scan", "db.t", "--split-size", "4KB", "--output", tmp_path / "rows")
    parts_read = [
        pq.read_table(part, partitioning=None) for part in (tmp_path / "rows").glob("*.parquet")
    ]
    assert len(parts_read) > 3
    found = pa.concat_tables(parts_read).to_pylist()
    assert in_order(found) == in_order(java.sql(warehouse, "SELECT * FROM {c}.db.t"))


def test_rows_keep_their_ids_and_the_sequence_number_of_their_last_change(
    warehouse: Path, java: JavaPeer
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (k BIGINT, s STRING) USING iceberg TBLPROPERTIES "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
        "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'copy-on-write', "
        f"{SMALL_GROUPS})",
    )
    insert = "INSERT INTO {c}.db.t SELECT id, concat('s', id) FROM "
    java.sql(warehouse, f"{insert} range(0, 1000)")
    java.sql(warehouse, "ALTER TABLE {c}.db.t SET TBLPROPERTIES ('format-version' = '3')")
    columns = "k, _row_id, _last_updated_sequence_number"

    def compare() -> None:
        expected = java.sql(warehouse, f"SELECT {columns} FROM {{c}}.db.t")
        assert in_order(with_lineage(warehouse)) == in_order(expected)

    # No writer has given the old rows ids yet.
    compare()
    java.sql(warehouse, f"{insert} range(1000, 2500)")
    java.sql(warehouse, "UPDATE {c}.db.t SET s = 'new' WHERE k % 10 = 3")
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE k % 10 = 5")
    compare()
    java.sql(
        warehouse,
        "MERGE INTO {c}.db.t t USING (SELECT id AS k FROM range(1500, 1600)) u ON t.k = u.k "
        "WHEN MATCHED THEN UPDATE SET s = 'merged'",
    )
    java.sql(warehouse, f"{insert} range(2500, 2600)")
    compare()
    java.sql(warehouse, "CALL {c}.system.rewrite_data_files(table => 'db.t')")
    compare()


def with_lineage(warehouse: Path) -> list[dict[str, Any]]:
    """Read a table's keys with row ids, by small batches."""
    table = open_session(warehouse).table("db.t")
    projection = Schema(
        table.schema.find_field("k"),
        NestedField(ROW_ID, "_row_id", LongType(), required=False),
        NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
    )
    found: list[dict[str, Any]] = []
    for split in plan_scan(table, ScanOptions(split_size=10_000)).reads():
        reading = ReadSettings.of(table, projection=projection, deletes=split.deletes)
        deletes = Deletes(table.storage, reading, split.slices)
        for item in split.slices:
            for batch in read_batches(table.storage, item, reading, deletes):
                found += batch.to_pylist()
    return found


SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "x", DoubleType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
)


def rows(*ids: int) -> pa.Table:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    special = [None, math.nan, 0.0, -0.0, 1.5, math.inf]
    found = [
        {
            "id": n,
            "name": None if n % 4 == 3 else f"n{n}",
            "x": special[n % 6],
            "f": special[-n % 6],
        }
        for n in ids
    ]
    return pa.Table.from_pylist(found, schema_to_pyarrow(SCHEMA))


def made(warehouse: Path, java: JavaPeer, version: int = 2, *columns: PartitionField) -> list[str]:
    """Make a table of two files of 24 rows each; return their paths."""
    table = make_table(warehouse, schema=SCHEMA, spec=PartitionSpec(*columns), format_version="2")
    table.append(rows(*range(24)))
    table.append(rows(*range(12, 36)))
    upgrade(warehouse, java, version)
    paths: list[str] = table.inspect.data_files()["file_path"].to_pylist()
    return paths


def upgrade(warehouse: Path, java: JavaPeer, version: int) -> None:
    java.sql(
        warehouse,
        f"ALTER TABLE {{c}}.db.t SET TBLPROPERTIES ('format-version' = '{version}')",
    )


def ingest(lake: CommandLine, folder: Path, *ids: int) -> None:
    pq.write_table(rows(*ids), folder / "more.parquet")
    lake.ok("ingest", "db.t", folder / "more.parquet")


def current(warehouse: Path) -> Table:
    return open_session(warehouse).table("db.t")


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_of_several_columns(
    lake: CommandLine, warehouse: Path, java: JavaPeer, version: int, tmp_path: Path
) -> None:
    made(warehouse, java, version)
    table = current(warehouse)
    table = commit_deletes(
        table,
        equality_file(table, [{"id": 1}, {"id": 13}, {"id": 99}], ["id"]),
        equality_file(table, [{"x": math.nan, "id": 7}, {"x": -0.0, "id": 9}], ["x", "id"]),
    )
    assert same_rows(lake, java, warehouse) == 48 - 3 - 2
    table = commit_deletes(table, equality_file(table, [{"name": None}], ["name"]))
    assert same_rows(lake, java, warehouse) == 48 - 3 - 2 - 11
    commit_deletes(table, equality_file(table, [{"x": math.nan}, {"x": 0.0}], ["x"]))
    left = same_rows(lake, java, warehouse)
    ingest(lake, tmp_path, 1, 7, 13)
    assert same_rows(lake, java, warehouse) == left + 3
    assert same_rows(lake, java, warehouse, "id > 10") < left
    table = current(warehouse)
    commit_deletes(
        table,
        equality_file(table, [{"f": math.nan, "name": "n5"}, {"f": 0.0, "name": "n4"}], ["f"]),
    )
    assert same_rows(lake, java, warehouse) < left + 3


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_after_changes_of_the_schema_and_the_spec(
    lake: CommandLine, warehouse: Path, java: JavaPeer, version: int
) -> None:
    made(warehouse, java, version, PartitionField(1, 1000, IdentityTransform(), "id"))

    def handle() -> Any:
        return pyiceberg_table(warehouse)

    def place(number: int) -> tuple[bytes, ...]:
        return (struct.pack("<i", number),)

    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"id": 13}], ["id"], partition=place(13)))
    assert same_rows(lake, java, warehouse) == 46
    with handle().update_schema() as update:
        update.rename_column("name", "title").rename_column("x", "name")
        update.update_column("f", DoubleType()).add_column("more", StringType())
    table = current(warehouse)
    keys = [{"title": "n14", "more": None, "f": 0.0}, {"title": "n17", "more": "no", "f": 0.0}]
    commit_deletes(table, equality_file(table, keys[:1], ["title"], partition=place(14)))
    assert same_rows(lake, java, warehouse) == 44
    with handle().update_spec() as update:
        update.remove_field("id")
    table = current(warehouse)
    commit_deletes(table, equality_file(table, keys, ["title", "more"]))
    assert same_rows(lake, java, warehouse) == 44
    commit_deletes(
        current(warehouse),
        equality_file(table, [{"title": "n18", "more": None}], ["more", "title"]),
        equality_file(table, [{"f": math.inf}], ["f"]),
    )
    assert 30 < same_rows(lake, java, warehouse) < 42
    with handle().update_schema() as update:
        update.update_column("id", LongType())
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"id": 20}, {"id": 2**40}], ["id"]))
    assert 28 < same_rows(lake, java, warehouse) < 41


def test_equality_deletes_of_a_column_that_was_dropped(
    lake: CommandLine, warehouse: Path, java: JavaPeer
) -> None:
    made(warehouse, java)
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"id": 1}, {"id": 13}], ["id"]))
    with pyiceberg_table(warehouse).update_schema() as update:
        update.delete_column("id")

    assert same_rows(lake, java, warehouse) == 45


def test_position_deletes_that_share_a_file(
    lake: CommandLine, warehouse: Path, java: JavaPeer, tmp_path: Path
) -> None:
    paths = made(warehouse, java)
    table = current(warehouse)
    places = [(path, position) for path in paths for position in (0, 3, 23)]
    table = commit_deletes(table, position_file(table, places))
    assert same_rows(lake, java, warehouse) == 42
    ingest(lake, tmp_path, 0, 3)
    table = current(warehouse)
    commit_deletes(table, position_file(table, [(paths[0], 3), (paths[0], 4)], names_file=False))
    assert same_rows(lake, java, warehouse) == 43
    assert same_rows(lake, java, warehouse, "id >= 20") > 10


def test_a_vector_takes_the_place_of_older_position_deletes(
    lake: CommandLine, warehouse: Path, java: JavaPeer
) -> None:
    paths = made(warehouse, java)
    table = current(warehouse)
    commit_deletes(table, position_file(table, [(path, n) for path in paths for n in (0, 3)]))
    upgrade(warehouse, java, 3)
    table = current(warehouse)
    # Not a union, as a writer would make it: what it does not hold is not deleted any more.
    commit_deletes(table, *vectors(table, {paths[0]: [1, 2, 23]}))

    assert same_rows(lake, java, warehouse) == 48 - 3 - 2
