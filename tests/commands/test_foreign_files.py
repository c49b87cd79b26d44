"""Data files that others wrote: timestamps as INT96, wrong figures in their entries, features that lake lacks."""

from __future__ import annotations

import base64
import datetime
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes
from support.tables.iceberg_tables import (
    make_table,
    open_session,
    pyiceberg_table,
)

from lake.core.base.errors import RefusedError
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.formats.parquet.footer import batches_of_group
from lake.core.io.avro.container import encode_long
from lake.core.table.manifests.data_files import POSITION_DELETES, DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

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
    commit_snapshot(
        session,
        table,
        AppendFiles(added=list(files)),
        CommitRequest(operation_id=session.ids.uuid()),
    )


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


@pytest.mark.parametrize("note", ["legacyINT96", "legacyDateTime"])
@pytest.mark.parametrize(
    ("column", "refused"),
    [
        (pa.array([datetime.date(1582, 10, 14)]), True),
        (pa.array([datetime.date(1582, 10, 15), None]), False),
        (pa.array([datetime.datetime(1899, 12, 31, 23, 59, 59)]), True),
        (pa.array([datetime.datetime(1900, 1, 1), None]), False),
        (pa.array([{"a": [[datetime.date(1, 1, 1)]]}]), True),
        (pa.array([None], pa.date32()), False),
    ],
    ids=["day", "first day", "time", "first time", "nested", "null"],
)
def test_old_dates_of_another_calendar_are_not_loaded(
    lake: CommandLine, warehouse: Path, note: str, column: pa.Array, refused: bool
) -> None:
    rows = pa.table({"id": range(len(column)), "old": column})
    path = warehouse.parent / "spark.parquet"
    pq.write_table(rows, path, store_schema=False)
    lake.ok("ingest", "db.plain", path, "--create")
    marked = rows.replace_schema_metadata({f"org.apache.spark.{note}": ""})
    pq.write_table(marked, path)

    found = lake("--json", "ingest", "db.t", path, "--create")

    assert found.exit_code == (3 if refused else 0)
    if refused:
        assert "column old" in found.json()["error"]["message"]
        assert lake("--json", "scan", "db.t").exit_code == 7


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
    assert "has type INT96, but int" in scan.json()["error"]["message"]


MILLIS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestamptzType(), required=False),
)


def millis_file(warehouse: Path, name: str, first: int, **figures: Any) -> DataFile:
    """Write ten rows with TIMESTAMP_MILLIS; the entry has bounds in ms, as Java's add_files records them."""
    numbers = list(range(first, first + 10))
    times = pa.array([number * 1000 - 5000 for number in numbers], pa.int64())
    table = pa.table([pa.array(numbers), times.cast(pa.timestamp("ms", "UTC"))], names=["id", "ts"])
    path = warehouse / "db" / "t" / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, store_schema=False)
    low, high = (value.as_py().to_bytes(8, "little", signed=True) for value in (times[0], times[9]))
    bounds = {"lower_bounds": {2: low}, "upper_bounds": {2: high}}
    counts = {"value_counts": {2: 10}, "null_value_counts": {2: 0}}
    return entry(path, 10, **{**bounds, **counts, **figures})


@pytest.mark.parametrize("options", [(), ("--verify",), ("--partial-progress",)], ids=str)
def test_compaction_corrects_wrong_bounds_and_warns_once(
    lake: CommandLine, warehouse: Path, options: tuple[str, ...]
) -> None:
    make_table(warehouse, schema=MILLIS)
    add_files(warehouse, millis_file(warehouse, "a", 0), millis_file(warehouse, "b", 10))
    lost = ("--where", "ts > '1970-01-01T00:00:10+00:00'")
    assert rows_of(lake, *lost) == {}

    done = lake.ok("compact", "db.t", "--rewrite-all", *options)
    again = lake.ok("compact", "db.t", "--rewrite-all", *options)

    (warning,) = done["warnings"]
    assert "wrong bounds (the lower bound of column ts was -5000 and is -5000000)" in warning
    assert again["warnings"] == []
    assert sorted(rows_of(lake)) == list(range(20))
    assert sorted(rows_of(lake, *lost)) == [16, 17, 18, 19]


@pytest.mark.parametrize("nulls", [3, 10])
def test_compaction_corrects_wrong_counts_of_nulls(
    lake: CommandLine, warehouse: Path, nulls: int
) -> None:
    make_table(warehouse, schema=MILLIS)
    exact = {"lower_bounds": {}, "upper_bounds": {}}
    wrong = millis_file(warehouse, "b", 10, null_value_counts={2: nulls}, **exact)
    add_files(warehouse, millis_file(warehouse, "a", 0, **exact), wrong)

    done = lake.ok("compact", "db.t", "--rewrite-all")

    (warning,) = done["warnings"]
    assert f"wrong counts (column ts had {nulls} NULLs and has 0)" in warning
    assert sorted(rows_of(lake, "--where", "ts is not null")) == list(range(20))
    (new,) = pyiceberg_table(warehouse).inspect.files().to_pylist()
    assert dict(new["null_value_counts"])[2] == 0


def test_compaction_corrects_counts_that_omit_nulls(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse, schema=MILLIS)
    path = warehouse / "db" / "t" / "data" / "a"
    path.parent.mkdir(parents=True)
    times = pa.array([0, None, 2000], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"id": [1, 2, 3], "ts": times}), path, store_schema=False)
    add_files(warehouse, entry(path, 3, value_counts={2: 3}, null_value_counts={2: 0}))
    assert rows_of(lake, "--where", "ts is null") == {}

    done = lake.ok("compact", "db.t", "--rewrite-all")

    (warning,) = done["warnings"]
    assert "wrong counts (column ts had 0 NULLs and has 1)" in warning
    assert sorted(rows_of(lake, "--where", "ts is null")) == [2]


def test_a_column_that_its_file_lacks_although_values_are_counted_stops_a_compaction(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse, schema=MILLIS)
    path = warehouse / "db" / "t" / "data" / "a"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), path)
    add_files(warehouse, entry(path, 2, value_counts={2: 2}, null_value_counts={2: 0}))

    found = lake("--json", "compact", "db.t", "--rewrite-all")

    assert (found.exit_code, found.json()["error"]["kind"]) == (7, "corrupt")
    assert (
        "had 0 NULLs and has 2, because a file does not contain" in found.json()["error"]["message"]
    )
    assert len(pyiceberg_table(warehouse).metadata.snapshots) == 1


def test_a_wrong_number_of_rows_is_refused(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse, schema=MILLIS)
    wrong = millis_file(warehouse, "a", 0)
    add_files(warehouse, replace(wrong, record_count=9))

    for command in (["scan", "db.t"], ["compact", "db.t", "--rewrite-all"]):
        found = lake("--json", *command)
        assert (found.exit_code, found.json()["error"]["kind"]) == (7, "corrupt")
        assert "has 10 rows, but the table's metadata says 9" in found.json()["error"]["message"]


def test_a_deletion_vector_without_a_puffin_file_around_it_is_read(
    lake: CommandLine, warehouse: Path
) -> None:
    source = warehouse.parent / "rows.csv"
    source.write_text("id\n" + "".join(f"{number}\n" for number in range(10)))
    lake.ok("ingest", "db.t", source, "--create", "--property", "format-version=3")
    (data,) = (warehouse / "db" / "t" / "data").glob("*.parquet")
    table = open_session(warehouse).table("db.t")
    blob = RowPositions(np.array([3, 7])).to_blob()
    path = warehouse / "db" / "t" / "data" / "bare.puffin"
    path.write_bytes(blob)
    bare = DataFile(
        content=POSITION_DELETES,
        path=f"file://{path}",
        format="PUFFIN",
        spec_id=0,
        record_count=2,
        size_bytes=len(blob),
        referenced_data_file=f"file://{data}",
        content_offset=0,
        content_size_bytes=len(blob),
    )
    commit_deletes(table, bare)
    left = [0, 1, 2, 4, 5, 6, 8, 9]

    assert sorted(rows_of(lake)) == left
    lake.ok("compact", "db.t", "--rewrite-all")
    assert sorted(rows_of(lake)) == left


class UnreadableColumn:
    """A Parquet file of which PyArrow reads all columns but one."""

    schema_arrow = pa.schema([("a", pa.int64()), ("b", pa.int64())])

    def iter_batches(self, *_: object, columns: list[str] | None, **__: object) -> Iterator[Any]:
        if columns is None or "b" in columns:
            raise pa.ArrowNotImplementedError("Nested data conversions not implemented")
        yield pa.record_batch({"a": [1]})


@pytest.mark.parametrize("names", [None, ["a", "b"]], ids=["all", "some"])
def test_a_column_that_pyarrow_cannot_read_is_named(names: list[str] | None) -> None:
    with pytest.raises(RefusedError, match="column b: Nested data conversions not implemented"):
        list(batches_of_group(UnreadableColumn(), "file", 0, names, 10))
    assert list(batches_of_group(UnreadableColumn(), "file", 0, ["a"], 10))


class Keys(encryption.KmsClient):  # type: ignore[misc]
    """Wraps keys by not encrypting them."""

    def __init__(self, _configuration: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _master: str) -> bytes:
        return base64.b64encode(key)


def encrypted(path: Path, *, plaintext_footer: bool) -> None:
    """Write a Parquet file whose column ``name`` is encrypted."""
    chosen = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["name"]}, plaintext_footer=plaintext_footer
    )
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), chosen
    )
    with pq.ParquetWriter(path, ROWS.schema, encryption_properties=properties) as writer:
        writer.write_table(ROWS)


def packed_with_lzo(path: Path) -> None:
    """Write a Parquet file that says that its first column is packed with LZO."""
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, compression="none", store_schema=False)
    data = bytearray(sink.getvalue())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # The codec follows the column's path in the footer: a field of the type i32, 0 for none, 3 (6 as zigzag) for LZO.
    at = data.index(b"\x18\x02id\x15\x00", start) + 5
    data[at] = 6
    path.write_bytes(data)
    assert pq.read_metadata(path).row_group(0).column(0).compression == "LZO"


def avro(schema: object, codec: str = "null") -> Callable[[Path], None]:
    """Return what writes an Avro file without rows."""

    def write(path: Path) -> None:
        header = {"avro.schema": json.dumps(schema), "avro.codec": codec}
        parts = [b"Obj\x01", encode_long(len(header))]
        for pair in header.items():
            parts += [part for text in pair for part in (encode_long(len(text)), text.encode())]
        path.write_bytes(b"".join([*parts, b"\x00", bytes(16)]))

    return write


def record(*fields: tuple[str, object], name: str = "r") -> dict[str, object]:
    columns = [{"name": column, "type": kind} for column, kind in fields]
    return {"type": "record", "name": name, "fields": columns}


ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
UNSUPPORTED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a Parquet file with an encrypted footer": (
        "parquet",
        partial(encrypted, plaintext_footer=False),
        "encrypted",
    ),
    "a Parquet file with an encrypted column": (
        "parquet",
        partial(encrypted, plaintext_footer=True),
        "encrypted columns",
    ),
    "a Parquet file packed with LZO": ("parquet", packed_with_lzo, "LZO"),
    "an Avro union of two types": (
        "avro",
        avro(record(("id", ["int", "string"]))),
        "the field id: a union",
    ),
    "an Avro union of three types": (
        "avro",
        avro(record(("id", ["null", "int", "string"]))),
        "the field id: a union",
    ),
    "an empty Avro record": ("avro", avro(record(("id", record(name="e")))), "without values"),
    "an array of unions in Avro": (
        "avro",
        avro(record(("id", {"type": "array", "items": ["int", "string"]}))),
        "a union",
    ),
    "a recursive Avro record": ("avro", avro(record(("id", ["null", "r"]))), "r contains itself"),
    "an Avro file of numbers": ("avro", avro("long"), "not records"),
    "an Avro file packed with xz": ("avro", avro(record(("id", "long")), "xz"), "codec xz"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name_and_not_called_corrupt(
    lake: CommandLine, warehouse: Path, kind: str
) -> None:
    suffix, write, feature = UNSUPPORTED[kind]
    make_table(
        warehouse,
        schema=Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "name", StringType(), required=False),
        ),
    )
    source = warehouse.parent / f"source.{suffix}"
    write(source)
    added = warehouse / "db" / "t" / "data" / f"added.{suffix}"
    added.parent.mkdir(parents=True, exist_ok=True)
    write(added)

    loaded = lake("--json", "ingest", "db.t", source)
    add_files(warehouse, replace(entry(added, 2), format=suffix.upper()))
    read = [
        lake("--json", *command)
        for command in (("scan", "db.t"), ("compact", "db.t", "--rewrite-all"))
    ]

    for found in (loaded, *read):
        assert (found.exit_code, found.json()["error"]["kind"]) == (3, "refused"), found
        assert feature in found.json()["error"]["message"]
    assert lake("--json", "snapshots", "db.t").exit_code == 0
    assert lake("--json", "expire", "db.t", "--older-than", "7d").exit_code == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (pa.ArrowNotImplementedError("Nested data conversions not implemented for chunks"), 3),
        (OSError("LZO compression is currently not supported by the C++ implementation"), 3),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer"), 7),
        (OSError("Corrupt snappy compressed data"), 7),
    ],
    ids=str,
)
def test_errors_of_pyarrow_map_to_different_exit_codes(error: Exception, code: int) -> None:
    assert reading_error(error, "file").exit_code == code
