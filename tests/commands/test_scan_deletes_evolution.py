"""Deletes go by field id, partition and sequence number, whatever became of the schema and the specs since."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.iceberg_tables import (
    make_table,
    open_session,
    pyiceberg_table,
)

from lake.core.base.settings import Settings
from lake.core.spec.types.arrow_schema import arrow_type
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import files_of
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots.live_files import live_files
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles
from lake.core.transaction.session import Session

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "x", FloatType(), required=False),
    NestedField(4, "p", DecimalType(5, 2), required=False),
    NestedField(
        5,
        "at",
        StructType(
            NestedField(6, "lon", IntegerType(), required=False),
            NestedField(7, "lat", IntegerType(), required=False),
        ),
        required=False,
    ),
)
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


def rows(*ids: int | None) -> pa.Table:
    """Return rows that all derive from their ids."""
    schema = pyiceberg_schema(SCHEMA)
    found = [
        {
            "id": n,
            "name": None if n is None else f"n{n}",
            "x": None if n is None else n / 2,
            "p": None if n is None else n,
            "at": None if n is None else {"lon": n, "lat": -n},
        }
        for n in ids
    ]
    return pa.Table.from_pylist(found, schema)


def pyiceberg_schema(schema: Schema) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema)


@pytest.fixture
def handle(warehouse: Path) -> Any:
    """An unpartitioned table of the rows 0 to 5 and one of NULLs."""
    table = make_table(warehouse, schema=SCHEMA)
    table.append(rows(0, 1, 2, None))
    table.append(rows(3, 4, 5))
    return table


def current(warehouse: Path) -> Table:
    return open_session(warehouse).table("db.t")


def add_file(table: Table, path: Path, count: int, **figures: Any) -> Table:
    """Add a Parquet file with the given metrics; return the table after it."""
    file = DataFile(
        path=f"file://{path}",
        spec_id=0,
        record_count=count,
        size_bytes=path.stat().st_size,
        **figures,
    )
    session = Session(settings=Settings(), catalog=table.catalog)
    request = CommitRequest(operation_id=str(uuid.uuid4()))
    return commit_snapshot(session, table, AppendFiles(added=[file]), request).table


def scan(lake: CommandLine, column: str, *options: object) -> list[Any]:
    """Return a column of what is left, in order, NULL last."""
    result = lake("scan", "db.t", *options, "--output", "-", "--output-format", "json")
    assert result.exit_code == 0, result
    found = [json.loads(line)[column] for line in result.stdout.splitlines()]
    return sorted(found, key=lambda value: (value is None, value))


def test_a_key_column_was_dropped_since(lake: CommandLine, warehouse: Path, handle: Any) -> None:
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"id": 1}, {"id": None}], ["id"]))
    with pyiceberg_table(warehouse).update_schema() as update:
        update.delete_column("id")

    assert scan(lake, "name") == ["n0", "n2", "n3", "n4", "n5"]
    assert scan(lake, "x", "--select", "x", "--where", "x >= 0.5") == [1.0, 1.5, 2.0, 2.5]


def test_a_dropped_key_columns_name_was_taken_by_another(
    lake: CommandLine, warehouse: Path, handle: Any
) -> None:
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"id": 1}], ["id"]))
    with pyiceberg_table(warehouse).update_schema() as update:
        update.delete_column("id")
    with pyiceberg_table(warehouse).update_schema() as update:
        update.add_column("id", StringType())
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"name": "n4", "id": None}], ["name", "id"]))

    assert scan(lake, "name") == ["n0", "n2", "n3", "n5", None]
    assert scan(lake, "id", "--where", "id is null", "--select", "id") == [None] * 5


def test_a_key_column_was_renamed_since(lake: CommandLine, warehouse: Path, handle: Any) -> None:
    table = current(warehouse)
    table = commit_deletes(table, equality_file(table, [{"id": 1}], ["id"]))
    with pyiceberg_table(warehouse).update_schema() as update:
        update.rename_column("id", "number").rename_column("name", "id")
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"number": 4}], ["number"]))

    assert scan(lake, "number") == [0, 2, 3, 5, None]


def test_key_columns_were_promoted_since(lake: CommandLine, warehouse: Path, handle: Any) -> None:
    table = current(warehouse)
    table = commit_deletes(
        table,
        equality_file(table, [{"id": 1}], ["id"]),
        equality_file(table, [{"x": 1.0}], ["x"]),
        equality_file(table, [{"p": 3, "id": 3}], ["p", "id"]),
    )
    with pyiceberg_table(warehouse).update_schema() as update:
        update.update_column("id", LongType()).update_column("x", DoubleType())
        update.update_column("p", DecimalType(9, 2))
    table = current(warehouse)
    commit_deletes(
        table,
        equality_file(table, [{"id": 4}], ["id"]),
        equality_file(table, [{"x": 2.5}], ["x"]),
        equality_file(table, [{"p": 0, "id": 0}], ["p", "id"]),
    )

    assert scan(lake, "id") == [None]


def test_a_key_is_a_part_of_a_struct(lake: CommandLine, warehouse: Path, handle: Any) -> None:
    table = current(warehouse)
    delete = equality_file(table, [{"at": {"lon": 2, "lat": 9}}], ["at.lon"])
    null = equality_file(table, [{"at": None}], ["at.lat"])
    commit_deletes(table, delete, null)

    assert scan(lake, "id") == [0, 1, 3, 4, 5]
    assert scan(lake, "id", "--select", "id,at.lat", "--where", "id < 3") == [0, 1]


def test_nulls_of_a_struct_that_orc_does_not_count_are_deleted(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    table, path = current(warehouse), warehouse / "rows.parquet"
    pq.write_table(rows(1, None), path)
    # Iceberg Java's counts for ORC leave out the field of a NULL struct.
    counts = {"value_counts": {7: 1}, "null_value_counts": {7: 0}}
    table = add_file(table, path, 2, **counts)
    delete = equality_file(table, [{"at": {"lon": None, "lat": None}}], ["at.lat"])
    nulls = {"value_counts": {7: 1}, "null_value_counts": {7: 1}}
    commit_deletes(table, replace(delete, **nulls))

    assert scan(lake, "id") == [1]
    lake.ok("deletes", "db.t", "--convert")
    assert [row["id"] for row in lake.rows()] == [1]


def test_a_key_column_is_younger_than_the_data(
    lake: CommandLine, warehouse: Path, handle: Any
) -> None:
    with pyiceberg_table(warehouse).update_schema() as update:
        update.add_column("kind", StringType())
    more = rows(6, 7).append_column("kind", pa.array(["a", None], pa.string()))
    pyiceberg_table(warehouse).append(more)
    table = current(warehouse)
    keys = [{"id": 1, "kind": None}, {"id": 2, "kind": "a"}, {"id": 6, "kind": "a"}]
    commit_deletes(table, equality_file(table, keys, ["id", "kind"]))

    assert scan(lake, "id") == [0, 2, 3, 4, 5, 7, None]


def test_deletes_share_a_sequence_number_with_data_only_by_position(
    lake: CommandLine, warehouse: Path, handle: Any
) -> None:
    table = current(warehouse)
    table = commit_deletes(table, equality_file(table, [{"id": 1}, {"id": 6}], ["id"]))
    pyiceberg_table(warehouse).append(rows(1, 6))

    assert scan(lake, "id") == [0, 1, 2, 3, 4, 5, 6, None]


def single(value: int) -> tuple[bytes, ...]:
    return (struct.pack("<i", value),)


def test_partitions_keep_deletes_apart_but_those_of_no_partition_are_for_all(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_ID).append(rows(1, 1, 2, 2, 3))
    table = current(warehouse)
    # The name is another partition's: nothing is deleted.
    other = equality_file(table, [{"name": "n2"}], ["name"], partition=single(1))
    own = equality_file(table, [{"name": "n1", "id": 1}], ["name", "id"], partition=single(1))
    table = commit_deletes(table, other)
    assert scan(lake, "id") == [1, 1, 2, 2, 3]
    commit_deletes(table, own)
    assert scan(lake, "id") == [2, 2, 3]

    with pyiceberg_table(warehouse).update_spec() as update:
        update.remove_field("id")
    table = current(warehouse)
    commit_deletes(table, equality_file(table, [{"name": "n3"}], ["name"]))
    assert scan(lake, "id") == [2, 2]


def test_deletes_of_a_new_spec_do_not_reach_files_of_the_old_one(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_ID).append(rows(1, 2))
    old = current(warehouse)
    in_old = equality_file(old, [{"id": 2}], ["id"], partition=single(2))
    with pyiceberg_table(warehouse).update_spec() as update:
        update.add_field("name", BucketTransform(4), "b")
    bucket = BucketTransform(4).transform(StringType())("n1")
    table = current(warehouse)
    place = (struct.pack("<i", 1), struct.pack("<i", bucket))
    table = commit_deletes(table, equality_file(table, [{"id": 1}], ["id"], partition=place))
    assert scan(lake, "id") == [1, 2]

    commit_deletes(table, in_old)
    assert scan(lake, "id") == [1]


def test_position_deletes_of_a_partition_name_several_of_its_files(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    handle = make_table(warehouse, schema=SCHEMA, spec=BY_ID)
    for _ in range(3):
        handle.append(rows(1, 1, 2))
    table = current(warehouse)
    files = handle.inspect.data_files().to_pylist()
    ones = [file["file_path"] for file in files if file["partition"]["id"] == 1]
    twos = [file["file_path"] for file in files if file["partition"]["id"] == 2]
    # The last is of another partition, whose files this delete file is not for.
    places = [(ones[0], 0), (ones[1], 1), (ones[2], 0), (ones[2], 1), (twos[0], 0)]
    commit_deletes(table, position_file(table, places, partition=single(1)))

    assert scan(lake, "id") == [1, 1, 2, 2, 2]
    assert lake.ok("scan", "db.t", "--output", tmp_path / "rows")["result"]["rows"] == 5
    assert scan(lake, "id", "--where", "id = 1") == [1, 1]


def test_partition_values_stand_in_for_a_key_column_that_files_lack(
    lake: CommandLine, warehouse: Path
) -> None:
    handle = make_table(warehouse, schema=SCHEMA, spec=BY_ID)
    handle.append(rows(1, 1, 2))
    # Hive's files have no columns whose values the partition contains.
    for row in handle.inspect.data_files().to_pylist():
        path = Path(row["file_path"].removeprefix("file://"))
        size = path.stat().st_size
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["id"]), path)
        assert path.stat().st_size <= size
    table = current(warehouse)
    delete = equality_file(table, [{"id": 1, "name": "n1"}], ["id"], partition=single(1))
    commit_deletes(table, delete)

    assert scan(lake, "id") == [2]


PARTITIONED_BY: list[tuple[Any, Any, Any]] = [
    (BinaryType(), b"\x00\xff", b"\x00"),
    (UUIDType(), b"\x00" * 15 + b"\x01", b"\xff" * 16),
    (FixedType(3), b"abc", b"abd"),
    (DecimalType(5, 2), Decimal("-1.00"), Decimal("127.55")),
    (DecimalType(38, 0), Decimal(-(10**37)), Decimal(3)),
    (DateType(), dt.date(1903, 5, 6), dt.date(2024, 2, 29)),
    (TimestampType(), dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
    (
        TimestamptzType(),
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2, 1, 1, tzinfo=dt.UTC),
    ),
    (StringType(), "", "ü/😀"),
    (BooleanType(), True, None),
    (DoubleType(), -0.0, 0.0),
    (DoubleType(), math.nan, None),
    (LongType(), -1, 2**40),
]


@pytest.mark.parametrize(
    ("kind", "one", "other"), PARTITIONED_BY, ids=lambda value: repr(value)[:30]
)
def test_deletes_find_partitions_of_every_type(
    lake: CommandLine, warehouse: Path, tmp_path: Path, kind: Any, one: Any, other: Any
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "p", kind, required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    make_table(warehouse, schema=schema, spec=spec)
    columns = [pa.array([1, 2, 3, 4]), pa.array([one, one, other, other], arrow_type(kind))]
    pq.write_table(pa.Table.from_arrays(columns, ["id", "p"]), tmp_path / "rows.parquet")
    lake.ok("ingest", "db.t", tmp_path / "rows.parquet")
    table = current(warehouse)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    (entries,) = live_files(table, snapshot).by_spec.values()
    files = files_of(entries, spec=table.spec, schema=table.schema)
    places = {file.partition: file.path for file in files}
    assert len(places) == 2
    gone, kept = sorted(places, key=lambda place: single_id(places[place]))
    keys = [{"id": n} for n in (1, 2, 3, 4)]
    table = commit_deletes(
        table,
        position_file(table, [(places[kept], 0), (places[gone], 0)], partition=kept),
        equality_file(table, keys[:1], ["id"], partition=kept),
    )
    assert scan(lake, "id") == [1, 2, 4]
    commit_deletes(table, equality_file(table, keys, ["id"], partition=gone))
    assert scan(lake, "id") == [4]


def single_id(path: str) -> Any:
    return pq.read_table(path.removeprefix("file://"), partitioning=None)["id"][0].as_py()


def test_deletes_of_an_old_spec_apply_to_its_files_after_a_change(
    lake: CommandLine, warehouse: Path
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", TimestampType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"))
    handle = make_table(warehouse, schema=schema, spec=spec)
    moments = [dt.datetime(2024, 2, 29, hour) for hour in (1, 2, 3)]
    handle.append(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "ts": moments}))
    old = current(warehouse)
    with handle.update_spec() as update:
        update.remove_field("ts_day").add_field("ts", HourTransform(), "ts_hour")
    handle = pyiceberg_table(warehouse)
    handle.append(pa.table({"id": pa.array([1, 4], pa.int64()), "ts": moments[:2]}))
    day = (struct.pack("<i", (moments[0].date() - dt.date(1970, 1, 1)).days),)
    first = old.handle.inspect.data_files()["file_path"][0].as_py()
    delete = equality_file(old, [{"id": 1}], ["id"], partition=day)
    commit_deletes(current(warehouse), delete, position_file(old, [(first, 2)], partition=day))

    assert scan(lake, "id") == [1, 2, 4]
