"""Manifests and manifest lists, judged by fastavro, PyIceberg and files that Flink wrote."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import math
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg import manifest as reference
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.tables.iceberg_tables import unsealed
from support.tiers import examples

from lake.core.base.errors import BadInputError, CorruptFileError
from lake.core.io.avro.container import Block, read_container, write_container
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.single_values import arrow_type, partition_type
from lake.core.table.manifests.api import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    MANIFEST_COLUMNS,
    MANIFEST_SCHEMA,
    ManifestContext,
    ManifestListHeader,
    decode_manifest_rows,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
    entries_of,
    files_of,
    read_manifest,
    read_manifest_list,
    read_manifests,
)
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.manifests.schemas import METRIC_COLUMNS

DATA = Path(__file__).parents[3] / "data" / "manifests"
UTC = dt.UTC
OLD, NEW = dt.datetime.fromisoformat("1901-01-01"), dt.datetime.fromisoformat("2100-01-01")
INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**40)
STAMP = st.datetimes(OLD, NEW)


class Shelf(Storage):
    """Storage in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self.files = dict(files)

    def read(self, location: str, *, limit: int = 0) -> bytes:
        return self.files[location]


# Source type, transform, values as Arrow takes them.
PARTITIONS: dict[str, tuple[IcebergType, Transform[Any, Any], st.SearchStrategy[Any]]] = {
    "boolean": (BooleanType(), IdentityTransform(), st.booleans()),
    "int": (IntegerType(), IdentityTransform(), INT),
    "long": (LongType(), IdentityTransform(), LONG),
    "float": (FloatType(), IdentityTransform(), st.floats(width=32)),
    "double": (DoubleType(), IdentityTransform(), st.floats()),
    "date": (DateType(), IdentityTransform(), st.dates(OLD.date(), NEW.date())),
    "time": (TimeType(), IdentityTransform(), st.times()),
    "timestamp": (TimestampType(), IdentityTransform(), STAMP),
    "timestamptz": (
        TimestamptzType(),
        IdentityTransform(),
        st.datetimes(OLD, NEW, timezones=st.just(UTC)),
    ),
    "string": (StringType(), IdentityTransform(), st.text(max_size=20)),
    "uuid": (UUIDType(), IdentityTransform(), st.binary(min_size=16, max_size=16)),
    "fixed": (FixedType(5), IdentityTransform(), st.binary(min_size=5, max_size=5)),
    "binary": (BinaryType(), IdentityTransform(), st.binary(max_size=20)),
    "decimal": (
        DecimalType(9, 2),
        IdentityTransform(),
        st.decimals(-9_999_999, 9_999_999, places=2),
    ),
    "wide decimal": (
        DecimalType(38, 0),
        IdentityTransform(),
        st.integers(-(10**38) + 1, 10**38 - 1).map(decimal.Decimal),
    ),
    "bucket": (LongType(), BucketTransform(16), st.integers(0, 15)),
    "truncated": (StringType(), TruncateTransform(3), st.text(max_size=3)),
    "year": (TimestampType(), YearTransform(), st.integers(-70, 130)),
    "month": (TimestamptzType(), MonthTransform(), st.integers(-800, 1500)),
    "day": (TimestampType(), DayTransform(), st.dates(OLD.date(), NEW.date())),
    "hour": (TimestamptzType(), HourTransform(), st.integers(-600_000, 1_100_000)),
    "void": (LongType(), VoidTransform(), st.none()),
    "größe/ü 7": (StringType(), IdentityTransform(), st.text(max_size=5)),
    "7 days": (DateType(), IdentityTransform(), st.dates(OLD.date(), NEW.date())),
}


def table_of(names: list[str]) -> tuple[Schema, PartitionSpec]:
    """Return a schema and a spec with the named partition fields."""
    columns = [NestedField(n, f"c{n}", PARTITIONS[name][0]) for n, name in enumerate(names, 1)]
    fields = [
        PartitionField(n, 999 + n, PARTITIONS[name][1], name) for n, name in enumerate(names, 1)
    ]
    return Schema(*columns, NestedField(50, "other", LongType()), schema_id=3), PartitionSpec(
        *fields, spec_id=4
    )


def metadata_of(*parts: tuple[Schema, PartitionSpec]) -> TableMetadata:
    schemas, specs = [p[0] for p in parts], [p[1] for p in parts]
    return TableMetadataV2(
        location="memory:/t",
        last_column_id=50,
        schemas=schemas,
        current_schema_id=schemas[0].schema_id,
        partition_specs=specs,
        default_spec_id=specs[0].spec_id,
        last_partition_id=1000,
    )


UNPARTITIONED = table_of([])


@st.composite
def rows(draw: st.DrawFn, version: int, content: int, names: list[str]) -> list[dict[str, Any]]:
    counts = st.none() | st.dictionaries(st.integers(1, 300), COUNT, max_size=4)
    edges = st.none() | st.dictionaries(st.integers(1, 300), st.binary(max_size=20), max_size=4)
    text = st.text(min_size=1, max_size=30)
    maybe = COUNT | st.none()
    deletes = version > 1 and content == 1
    entry = st.fixed_dictionaries(
        {
            "status": st.sampled_from([EXISTING, ADDED, ADDED, DELETED]),
            "snapshot_id": st.integers(1, 2**62) if version == 1 else maybe,
            # No file is newer than its manifest.
            "sequence_number": st.none() if version == 1 else st.integers(0, 7),
            "file_sequence_number": st.none() if version == 1 else maybe,
            "content": st.sampled_from([1, 2]) if deletes else st.just(0),
            "file_path": text,
            "file_format": st.sampled_from(["PARQUET", "ORC", "AVRO", "PUFFIN"]),
            "partition": st.fixed_dictionaries(
                {str(999 + n): PARTITIONS[name][2] | st.none() for n, name in enumerate(names, 1)}
            ),
            "record_count": COUNT,
            "file_size_in_bytes": COUNT,
            "column_sizes": counts,
            "value_counts": counts,
            "null_value_counts": counts,
            "nan_value_counts": counts,
            "lower_bounds": edges,
            "upper_bounds": edges,
            "key_metadata": st.none() | st.binary(max_size=9),
            "split_offsets": st.none() | st.lists(COUNT, max_size=3),
            "equality_ids": st.none() | st.lists(st.integers(1, 300), max_size=3)
            if deletes
            else st.none(),
            "sort_order_id": st.none() | st.integers(0, 9),
            "first_row_id": maybe if version == 3 else st.none(),
            "referenced_data_file": st.none() | text if version > 1 else st.none(),
            "content_offset": maybe if version == 3 else st.none(),
            "content_size_in_bytes": maybe if version == 3 else st.none(),
        }
    )
    drawn: list[dict[str, Any]] = draw(st.lists(entry, min_size=1, max_size=8))
    for one in drawn:
        if version > 1 and one["status"] == ADDED and draw(st.booleans()):
            one["sequence_number"] = None
    return drawn


def entries_table(rows: list[dict[str, Any]], schema: Schema, spec: PartitionSpec) -> pa.Table:
    kinds = partition_type(spec, [schema]).fields
    struct = pa.struct([(str(f.field_id), arrow_type(f.field_type)) for f in kinds])
    columns = {}
    for name, kind in ENTRY_COLUMNS.items():
        values = [row.get(name) for row in rows]
        if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
            values = [None if v is None else [{"key": k, "value": v[k]} for k in v] for v in values]
        columns[name] = pa.array(values, struct if name == "partition" else kind)
    return pa.table(columns)


def simple(count: int = 3, **given: Any) -> dict[str, Any]:
    """Return a row with the fewest values."""
    return {
        "status": ADDED,
        "snapshot_id": 11,
        "content": 0,
        "file_path": f"memory:/t/{count}.parquet",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": count,
        "file_size_in_bytes": 100 + count,
        **given,
    }


def manifest_of(
    table: pa.Table,
    schema: Schema = UNPARTITIONED[0],
    spec: PartitionSpec = UNPARTITIONED[1],
    *,
    version: int = 2,
    content: int = 0,
    location: str = "m.avro",
    codec: str = "gzip",
    sequence_number: int = 7,
    **changes: Any,
) -> tuple[bytes, dict[str, Any]]:
    """Return a manifest's bytes and its row in the list."""
    context = ManifestContext(
        format_version=version, spec=spec, schema=schema, content=content, codec=codec
    )
    data = encode_manifest(table, context)
    row = describe_manifest(
        table,
        context,
        location=location,
        length=len(data),
        sequence_number=0 if version == 1 else sequence_number,
        added_snapshot_id=11,
    )
    return data, {**row, **changes}


def read_back(table: pa.Table, *args: Any, columns: Any = None, **options: Any) -> pa.Table:
    data, row = manifest_of(table, *args, **options)
    metadata = metadata_of((args or UNPARTITIONED)[:2])  # type: ignore[arg-type]
    return read_manifest(Shelf({row["manifest_path"]: data}), row, metadata, columns=columns)


def comparable(value: Any) -> Any:
    """Make NaNs equal, zeros of either sign different, and numbers of one value alike."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


def inherited(rows: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """Return what a reader must see of rows in a manifest of sequence number 7 (version 1: 0)."""
    number = 0 if version == 1 else 7
    seen = []
    for row in rows:
        new = dict(row)
        new["snapshot_id"] = 11 if row["snapshot_id"] is None else row["snapshot_id"]
        for name in ("sequence_number", "file_sequence_number"):
            takes = row[name] is None and (row["status"] == ADDED or version == 1)
            new[name] = number if takes else row[name]
        seen.append(new)
    return seen


CASES = st.tuples(
    st.sampled_from([(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]),
    st.lists(st.sampled_from(sorted(PARTITIONS)), max_size=3, unique=True),
)
PROPERTY = settings(
    deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow]
)


@PROPERTY
@given(st.data())
def test_what_is_written_is_what_is_read(data: st.DataObject) -> None:
    (version, content), names = data.draw(CASES)
    schema, spec = table_of(names)
    drawn = data.draw(rows(version, content, names))
    codec = data.draw(st.sampled_from(["gzip", "zstd", "snappy", "uncompressed"]))
    options: dict[str, Any] = {"version": version, "content": content, "codec": codec}
    read = read_back(entries_table(drawn, schema, spec), schema, spec, **options)
    expected = inherited(drawn, version)
    if content == 0:
        # A data manifest without a first row id has files without one.
        expected = [{**row, "first_row_id": None} for row in expected]
    expected_table = entries_table(expected, schema, spec)
    assert read.column_names == [*ENTRY_COLUMNS, "spec_id", "manifest_path"]
    assert read.drop_columns(["spec_id", "manifest_path"]).schema == expected_table.schema
    assert comparable(read.select(list(ENTRY_COLUMNS)).to_pylist()) == comparable(
        expected_table.to_pylist()
    )
    assert set(read["spec_id"].to_pylist()) == {4}
    assert set(read["manifest_path"].to_pylist()) == {"m.avro"}


@PROPERTY
@given(st.data())
def test_the_metrics_of_some_columns_are_read_alone(data: st.DataObject) -> None:
    (version, content), names = data.draw(CASES)
    schema, spec = table_of(names)
    drawn = data.draw(rows(version, content, names))
    known = {key for row in drawn for column in METRIC_COLUMNS for key in row[column] or ()}
    fields = data.draw(st.sets(st.sampled_from([*sorted(known), 99])))
    written, listed = manifest_of(
        entries_table(drawn, schema, spec), schema, spec, version=version, content=content
    )
    shelf, metadata = Shelf({listed["manifest_path"]: written}), metadata_of((schema, spec))
    manifests = pa.Table.from_pylist([listed], MANIFEST_SCHEMA)
    whole, some = (
        read_manifests(shelf, manifests, metadata, fields=chosen) for chosen in (None, fields)
    )
    expected = {spec_id: table.to_pylist() for spec_id, table in whole.items()}
    for row in [row for found in expected.values() for row in found]:
        for column in METRIC_COLUMNS:
            if row[column] is not None:
                row[column] = [pair for pair in row[column] if pair["key"] in fields]
    assert comparable({key: table.to_pylist() for key, table in some.items()}) == comparable(
        expected
    )


def from_fastavro(value: Any, name: str) -> Any:
    """Return a partition value that fastavro read as Arrow gives it."""
    if name == "timestamp" and value is not None:
        return value.replace(tzinfo=None)
    if name == "uuid" and isinstance(value, uuid.UUID):
        return value.bytes
    return value


@PROPERTY
@given(st.data())
def test_what_is_written_is_what_fastavro_reads(data: st.DataObject) -> None:
    (version, content), names = data.draw(CASES)
    schema, spec = table_of(names)
    drawn = data.draw(rows(version, content, names))
    table = entries_table(drawn, schema, spec)
    raw, _ = manifest_of(table, schema, spec, version=version, content=content)
    stored = list(fastavro.reader(io.BytesIO(raw)))
    for found, row in zip(stored, table.to_pylist(), strict=True):
        file = found.pop("data_file")
        partition = list(file.pop("partition").values())
        file.pop("block_size_in_bytes", None)
        assert comparable(
            [from_fastavro(value, name) for value, name in zip(partition, names, strict=True)]
        ) == comparable(list(row.pop("partition").values()))
        for name, value in {**found, **file}.items():
            assert value == row[name], name
        # Whatever the version does not store was not there.
        for name in row.keys() - found.keys() - file.keys():
            assert row[name] in (None, 0), name


@PROPERTY
@given(st.data())
def test_what_is_written_is_what_pyiceberg_reads(data: st.DataObject) -> None:
    (version, content), names = data.draw(CASES)
    schema, spec = table_of(names)
    drawn = data.draw(rows(version, content, names))
    table = entries_table(drawn, schema, spec)
    with tempfile.TemporaryDirectory() as folder:
        location = f"{folder}/m.avro"
        raw, row = manifest_of(
            table, schema, spec, version=version, content=content, location=location
        )
        Path(location).write_bytes(raw)
        found = pyiceberg_manifest(row).fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    expected = inherited(drawn, version)
    for entry, wanted in zip(found, expected, strict=True):
        assert (int(entry.status), entry.snapshot_id) == (wanted["status"], wanted["snapshot_id"])
        assert entry.sequence_number == wanted["sequence_number"]
        assert entry.file_sequence_number == wanted["file_sequence_number"]
        for name in PYICEBERG_FIELDS:
            value = getattr(entry.data_file, name)
            assert value == wanted[name], name


PYICEBERG_FIELDS = [
    name
    for name in ENTRY_COLUMNS
    if name in {field.name for field in reference.DATA_FILE_TYPE[2].fields} and name != "partition"
]


def pyiceberg_manifest(row: Mapping[str, Any]) -> reference.ManifestFile:
    values = {name: value for name, value in row.items() if name != "first_row_id"}
    values["content"] = reference.ManifestContent(row["content"])
    if row["partitions"] is not None:
        values["partitions"] = [
            reference.PartitionFieldSummary.from_args(**summary) for summary in row["partitions"]
        ]
    return reference.ManifestFile.from_args(**values)


@PROPERTY
@given(st.data())
def test_a_manifest_is_described_as_pyiceberg_describes_it(data: st.DataObject) -> None:
    names = data.draw(
        st.lists(st.sampled_from(sorted(PARTITIONS.keys() - {"uuid"})), max_size=3, unique=True)
    )
    schema, spec = table_of(names)
    drawn = data.draw(rows(2, 0, names))
    table = entries_table(drawn, schema, spec)
    row = manifest_of(table, schema, spec)[1]
    kinds = partition_type(spec, [schema]).fields
    partitions = [
        Record(*(plain(row["partition"][str(f.field_id)], f.field_type) for f in kinds))
        for row in drawn
    ]
    wanted = reference.construct_partition_summaries(spec, schema, partitions)
    assert len(row["partitions"]) == len(wanted)
    for found, summary in zip(row["partitions"], wanted, strict=True):
        assert found["contains_null"] == summary.contains_null
        assert found["contains_nan"] == summary.contains_nan
        for bound in ("lower_bound", "upper_bound"):
            # PyIceberg takes either zero, Iceberg the negative one first.
            ours, theirs = found[bound], getattr(summary, bound)
            assert ours == theirs or {ours, theirs} <= ZEROS
    for status, word in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        counts = [entry["record_count"] for entry in drawn if entry["status"] == status]
        assert row[f"{word}_files_count"] == len(counts)
        assert row[f"{word}_rows_count"] == sum(counts)
    live = [r["sequence_number"] for r in drawn if r["status"] != DELETED]
    assert row["min_sequence_number"] == min([7 if n is None else n for n in live], default=7)


ZEROS = {bytes(4), bytes(8), bytes(3) + b"\x80", bytes(7) + b"\x80"}


def plain(value: Any, kind: IcebergType) -> Any:
    """Return a value as PyIceberg keeps partition values."""
    if isinstance(value, dt.datetime):
        return int(pa.scalar(value, arrow_type(kind)).value)
    if isinstance(value, dt.date | dt.time):
        return int(pa.scalar(value, arrow_type(kind)).value)
    return value


def test_negative_zero_is_the_lower_bound_and_nan_is_not_a_bound() -> None:
    schema, spec = table_of(["double"])
    values = [0.0, -0.0, math.nan, None]
    table = entries_table([simple(partition={"1000": v}) for v in values], schema, spec)
    (summary,) = manifest_of(table, schema, spec)[1]["partitions"]
    assert summary == {
        "contains_null": True,
        "contains_nan": True,
        "lower_bound": bytes(7) + b"\x80",
        "upper_bound": bytes(8),
    }


def test_uuid_bounds_are_ordered_as_unsigned_bytes() -> None:
    schema, spec = table_of(["uuid"])
    low, high = b"\x01" + bytes(15), b"\xf0" + bytes(15)
    table = entries_table([simple(partition={"1000": v}) for v in (high, low)], schema, spec)
    (summary,) = manifest_of(table, schema, spec)[1]["partitions"]
    assert (summary["lower_bound"], summary["upper_bound"]) == (low, high)


@PROPERTY
@given(st.data())
def test_files_survive_the_way_through_entries_and_back(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(PARTITIONS)), max_size=3, unique=True))
    schema, spec = table_of(names)
    table = entries_table(data.draw(rows(3, 1, names)), schema, spec)
    # What a DataFile does not carry.
    table = table.set_column(
        table.column_names.index("key_metadata"), "key_metadata", pa.nulls(len(table), pa.binary())
    )
    files = files_of(table, spec=spec, schema=schema)
    again = entries_of(files, spec=spec, schema=schema, status=1, snapshot_id=5)
    assert files_of(again, spec=spec, schema=schema) == files
    assert [DataFile.from_plain(json.loads(json.dumps(f.to_plain()))) for f in files] == files
    for name in ("partition", "file_path", "record_count", "equality_ids", "content_offset"):
        assert comparable(again[name].to_pylist()) == comparable(table[name].to_pylist()), name
    assert again.schema == table.schema
    assert again["sequence_number"].null_count == len(files)


def test_files_of_another_spec_or_with_foreign_values_are_refused() -> None:
    schema, spec = table_of(["int"])

    def build(partition: tuple[bytes | None, ...], spec_id: int = 4) -> pa.Table:
        file = DataFile(
            path="p", spec_id=spec_id, partition=partition, record_count=1, size_bytes=1
        )
        return entries_of([file], spec=spec, schema=schema, status=ADDED, snapshot_id=None)

    assert build((b"\x01\x00\x00\x00",))["partition"].to_pylist() == [{"1000": 1}]
    for partition, spec_id in (((b"\x01",), 4), ((), 4), ((None,), 0)):
        with pytest.raises(BadInputError):
            build(partition, spec_id)


# What real writers left.


def fixture(name: str) -> tuple[Shelf, pa.Table, TableMetadata]:
    """Return a folder's files under the locations that the manifest list gives them."""
    folder = DATA / name
    shelf = Shelf({"list": (folder / "list.avro").read_bytes()})
    manifests = read_manifest_list(shelf, "list")
    for location in manifests["manifest_path"].to_pylist():
        shelf.files[location] = (folder / location.rpartition("/")[2]).read_bytes()
    header = read_container(shelf.files[location], name="x").metadata
    spec = PartitionSpec(
        *json.loads(header["partition-spec"]), spec_id=int(header["partition-spec-id"])
    )
    return shelf, manifests, metadata_of((Schema.model_validate_json(header["schema"]), spec))


FIXTURES = sorted(folder.name for folder in DATA.iterdir())


@pytest.mark.parametrize("name", FIXTURES)
def test_manifests_of_iceberg_java_are_read_as_fastavro_reads_them(name: str) -> None:
    shelf, manifests, metadata = fixture(name)
    listed = list(fastavro.reader(io.BytesIO(shelf.files["list"])))
    for row, wanted in zip(manifests.to_pylist(), listed, strict=True):
        for column in wanted:
            assert row[column] == wanted[column]
        assert row["content"] == wanted.get("content", 0)
        entries = read_manifest(shelf, row, metadata).to_pylist()
        stored = list(fastavro.reader(io.BytesIO(shelf.files[row["manifest_path"]])))
        for found, entry in zip(entries, stored, strict=True):
            file = entry.pop("data_file")
            assert list(found["partition"].values()) == list(file.pop("partition").values())
            file.pop("block_size_in_bytes", None)
            first = file.pop("first_row_id", None)
            assert found["first_row_id"] == (row["first_row_id"] if row["content"] == 0 else first)
            for column, value in {**entry, **file}.items():
                if column.endswith("sequence_number") and value is None:
                    value = row["sequence_number"]  # noqa: PLW2901
                assert found[column] == value, column


@pytest.mark.parametrize("name", FIXTURES)
def test_manifests_of_iceberg_java_are_written_again_with_the_same_content(name: str) -> None:
    shelf, manifests, metadata = fixture(name)
    for row in manifests.to_pylist():
        original = read_container(shelf.files[row["manifest_path"]], name="x")
        version = int(original.metadata["format-version"])
        entries = read_manifest(shelf, row, metadata)
        raw, made = manifest_of(
            entries,
            metadata.schema(),
            metadata.spec(),
            version=version,
            content=row["content"],
            sequence_number=row["sequence_number"],
            added_snapshot_id=row["added_snapshot_id"],
            first_row_id=row["first_row_id"],
        )
        assert (
            read_manifest(Shelf({"m.avro": raw}), made, metadata)
            .drop_columns(["manifest_path"])
            .equals(entries.drop_columns(["manifest_path"]))
        )
        for column, value in made.items():
            if column not in {"manifest_path", "manifest_length"}:
                assert value == row[column], column
        header = read_container(raw, name="x").metadata
        # More than Java writes: what the format asks for since version 2, and lake's seal.
        assert header.keys() - original.metadata.keys() == {"schema-id", "lake.sync-marker"}
        assert not original.metadata.keys() - header.keys()
        for key in ("format-version", "partition-spec-id", "content"):
            assert header.get(key) == original.metadata.get(key)
        assert field_ids(header) == field_ids(original.metadata)


def field_ids(header: Mapping[str, bytes]) -> list[tuple[Any, Any]]:
    """Return the ids and types of a manifest's or a list's fields, in their order."""
    schema = json.loads(header["avro.schema"])

    def walk(kind: Any) -> Any:
        if isinstance(kind, list):
            return [walk(branch) for branch in kind]
        if isinstance(kind, dict) and kind["type"] == "record":
            return [(f["field-id"], walk(f["type"])) for f in kind["fields"]]
        if isinstance(kind, dict) and kind["type"] == "array":
            return ["array", kind.get("element-id"), walk(kind["items"])]
        return kind

    found: list[tuple[Any, Any]] = walk(schema)
    if found[1][0] == 1:
        # Java lets version 1 lack a snapshot id, the format does not.
        found[1] = (1, None)
    return found


@pytest.mark.parametrize("name", FIXTURES)
def test_manifest_lists_of_iceberg_java_are_written_again_with_the_same_content(name: str) -> None:
    shelf, manifests, _ = fixture(name)
    original = read_container(shelf.files["list"], name="x").metadata
    raw = encode_manifest_list(
        manifests,
        ManifestListHeader(
            format_version=int(original["format-version"]),
            snapshot_id=int(original["snapshot-id"]),
            parent_snapshot_id=None
            if original["parent-snapshot-id"] == b"null"
            else int(original["parent-snapshot-id"]),
            sequence_number=int(original.get("sequence-number", b"0")),
            first_row_id=int(original["first-row-id"]) if "first-row-id" in original else None,
        ),
    )
    header = read_container(raw, name="x").metadata
    assert header.keys() - original.keys() == {"lake.sync-marker"}
    assert not original.keys() - header.keys()
    for key in original.keys() - {"avro.schema", "iceberg.schema"}:
        assert header[key] == original[key], key
    assert field_ids(header) == field_ids(original)
    read = [list(fastavro.reader(io.BytesIO(data))) for data in (raw, shelf.files["list"])]
    assert read[0] == read[1]
    assert read_manifest_list(Shelf({"l": raw}), "l").equals(manifests)


@PROPERTY
@given(st.sampled_from([1, 2, 3]), st.data())
def test_a_manifest_list_is_read_as_written_by_all_readers(
    version: int, data: st.DataObject
) -> None:
    count = st.integers(0, 2**31 - 1) if version > 1 else st.none() | st.integers(0, 2**31 - 1)
    total = COUNT if version > 1 else st.none() | COUNT
    edge = st.none() | st.binary(max_size=12)
    summary = st.fixed_dictionaries(
        {
            "contains_null": st.booleans(),
            "contains_nan": st.none() | st.booleans(),
            "lower_bound": edge,
            "upper_bound": edge,
        }
    )
    row = st.fixed_dictionaries(
        {
            "manifest_path": st.text(min_size=1, max_size=40),
            "manifest_length": COUNT,
            "partition_spec_id": st.integers(0, 9),
            "content": st.integers(0, 1 if version > 1 else 0),
            "sequence_number": COUNT if version > 1 else st.just(0),
            "min_sequence_number": COUNT if version > 1 else st.just(0),
            "added_snapshot_id": st.integers(-1, 2**62),
            **{f"{word}_files_count": count for word in ("added", "existing", "deleted")},
            **{f"{word}_rows_count": total for word in ("added", "existing", "deleted")},
            "partitions": st.none() | st.lists(summary, max_size=3),
            "key_metadata": edge,
            "first_row_id": st.none() | COUNT if version == 3 else st.none(),
        }
    )
    manifests = pa.Table.from_pylist(
        data.draw(st.lists(row, max_size=6, unique_by=lambda one: one["manifest_path"])),
        MANIFEST_SCHEMA,
    )
    raw = encode_manifest_list(
        manifests,
        ManifestListHeader(
            format_version=version, snapshot_id=5, parent_snapshot_id=None, sequence_number=2
        ),
    )
    assert read_manifest_list(Shelf({"l": raw}), "l").equals(manifests)
    absent = {1: NOT_IN_1, 2: {"first_row_id"}, 3: set()}[version]
    stored = manifests.select([c for c in manifests.column_names if c not in absent])
    assert list(fastavro.reader(io.BytesIO(raw))) == stored.to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/l.avro").write_bytes(raw)
        found = list(reference.read_manifest_list(PyArrowFileIO().new_input(f"{folder}/l.avro")))
    for theirs, ours in zip(found, manifests.to_pylist(), strict=True):
        for column in MANIFEST_COLUMNS.keys() - {"partitions", "first_row_id"}:
            assert getattr(theirs, column) == ours[column], column
        summaries = None if ours["partitions"] is None else [
            (s["contains_null"], s["contains_nan"], s["lower_bound"], s["upper_bound"])
            for s in ours["partitions"]
        ]  # fmt: skip
        assert summaries == (
            None
            if theirs.partitions is None
            else [
                (s.contains_null, s.contains_nan, s.lower_bound, s.upper_bound)
                for s in theirs.partitions
            ]
        )


NOT_IN_1 = {"content", "sequence_number", "min_sequence_number", "first_row_id"}


def test_a_list_of_an_old_writer_is_read_by_field_id() -> None:
    schema = {"type": "record", "name": "manifest_file", "fields": [
        {"name": "manifest_path", "type": "string", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "added_snapshot_id", "type": ["null", "long"], "field-id": 503},
        {"name": "added_data_files_count", "type": ["null", "int"], "field-id": 504},
        {"name": "partitions", "type": ["null", {"type": "array", "items": {
            "type": "record", "name": "r508", "fields": [
                {"name": "contains_null", "type": "boolean", "field-id": 509},
                {"name": "lower_bound", "type": ["null", "bytes"], "field-id": 510},
                {"name": "upper_bound", "type": ["null", "bytes"], "field-id": 511}]}}],
            "field-id": 507},
    ]}  # fmt: skip
    sink = io.BytesIO()
    summary = {"contains_null": True, "lower_bound": b"a", "upper_bound": None}
    row = {"manifest_path": "m", "manifest_length": 9, "partition_spec_id": 0,
           "added_snapshot_id": 3, "added_data_files_count": 4, "partitions": [summary]}  # fmt: skip
    fastavro.writer(sink, schema, [row])
    (read,) = read_manifest_list(Shelf({"l": sink.getvalue()}), "l").to_pylist()
    assert read == dict.fromkeys(MANIFEST_COLUMNS) | {
        "manifest_path": "m",
        "manifest_length": 9,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 0,
        "min_sequence_number": 0,
        "added_snapshot_id": 3,
        "added_files_count": 4,
        "partitions": [{**summary, "contains_nan": None}],
    }


def test_a_single_row_without_a_file_around_it_is_decoded() -> None:
    shelf, manifests, _ = fixture("v2-unpartitioned")
    container = read_container(shelf.files["list"], name="x")
    (block,) = container.blocks
    read = decode_manifest_rows(container.schema_json, [Block(1, bytes(block.data))], name="state")
    assert read.equals(manifests)


# Inheritance.


@pytest.mark.parametrize(
    ("status", "stored", "of_manifest", "seen"),
    [
        (ADDED, None, 7, 7),
        (ADDED, 3, 7, 3),
        (ADDED, None, 0, 0),
        (EXISTING, 3, 7, 3),
        (EXISTING, None, 0, 0),
        (DELETED, 4, 7, 4),
        (ADDED, None, -1, -1),
    ],
)
def test_sequence_numbers_are_inherited_by_added_entries_and_version_1(
    status: int, stored: int | None, of_manifest: int, seen: int
) -> None:
    table = entries_table([simple(status=ADDED, sequence_number=stored)], *UNPARTITIONED)
    data, row = manifest_of(table, sequence_number=of_manifest)
    data, row = with_status(data, row, status)
    (entry,) = read_manifest(Shelf({"m.avro": data}), row, metadata_of(UNPARTITIONED)).to_pylist()
    assert entry["sequence_number"] == seen


def with_status(data: bytes, row: dict[str, Any], status: int) -> tuple[bytes, dict[str, Any]]:
    """Return a manifest of one added entry with that entry's status changed, unchecked."""
    container = read_container(data, name="x")
    block = bytearray(container.blocks[0].data)
    block[0] = status * 2
    schema = json.loads(container.schema_json)
    new = write_container(schema, [Block(1, bytes(block))], metadata={}, codec="gzip")
    changes = dict.fromkeys((c for c in row if c.endswith("_count")), None)
    return new, {**row, **changes, "manifest_length": len(new)}


def test_a_live_file_without_a_sequence_number_is_refused() -> None:
    table = entries_table([simple()], *UNPARTITIONED)
    for status, refused in ((EXISTING, True), (DELETED, False)):
        data, row = with_status(*manifest_of(table), status)
        shelf, metadata = Shelf({"m.avro": data}), metadata_of(UNPARTITIONED)
        if refused:
            with pytest.raises(CorruptFileError, match="without a sequence number"):
                read_manifest(shelf, row, metadata)
        else:
            assert read_manifest(shelf, row, metadata)["sequence_number"].to_pylist() == [None]


def test_the_file_sequence_number_of_an_existing_file_may_be_unknown() -> None:
    table = entries_table([simple(status=EXISTING, sequence_number=2)], *UNPARTITIONED)
    assert read_back(table)["file_sequence_number"].to_pylist() == [None]


def test_row_ids_are_given_in_order_to_live_files_that_have_none() -> None:
    given = [
        simple(10),
        simple(20, status=DELETED, sequence_number=1),
        simple(30, first_row_id=5000),
        simple(40, status=EXISTING, sequence_number=1),
        simple(50),
    ]
    table = entries_table(given, *UNPARTITIONED)
    read = read_back(table, *UNPARTITIONED, version=3, first_row_id=1000)
    assert read["first_row_id"].to_pylist() == [1000, None, 5000, 1010, 1050]
    without = read_back(table, *UNPARTITIONED, version=3)
    assert without["first_row_id"].to_pylist() == [None] * 5


def test_row_ids_start_again_in_every_manifest() -> None:
    shelf, manifests = Shelf({}), []
    for number, first in enumerate((100, 900, None)):
        table = entries_table([simple(1 + number), simple(5)], *UNPARTITIONED)
        location = f"m{number}"
        raw, row = manifest_of(table, version=3, location=location, first_row_id=first)
        shelf.files[location] = raw
        manifests.append(row)
    listed = pa.Table.from_pylist(manifests, MANIFEST_SCHEMA)
    read = read_manifests(shelf, listed, metadata_of(UNPARTITIONED))[4]
    assert read["first_row_id"].to_pylist() == [100, 101, 900, 902, None, None]


def test_delete_files_get_no_row_ids() -> None:
    table = entries_table([simple(content=1)], *UNPARTITIONED)
    read = read_back(table, *UNPARTITIONED, version=3, content=1, first_row_id=10)
    assert read["first_row_id"].to_pylist() == [None]


# Many manifests.


def test_many_manifests_are_read_as_one_by_one() -> None:
    schema = Schema(
        NestedField(1, "c1", TimestampType()), NestedField(2, "c2", StringType()), schema_id=3
    )
    specs = [
        PartitionSpec(PartitionField(1, 1000, HourTransform(), "h"), spec_id=4),
        PartitionSpec(
            PartitionField(1, 1000, DayTransform(), "d"),
            PartitionField(2, 1001, IdentityTransform(), "s"),
            spec_id=9,
        ),
    ]
    values = [{"1000": 5}, {"1000": dt.date(2024, 2, 29), "1001": "x"}]
    shelf, manifests = Shelf({}), []
    for number in range(20):
        spec, partition = specs[number % 2], values[number % 2]
        rows = [
            simple(number + 1, partition=partition),
            simple(7, partition=partition, status=DELETED, sequence_number=3),
        ]
        raw, row = manifest_of(
            entries_table(rows, schema, spec),
            schema,
            spec,
            version=1 + number % 3,
            location=f"m{number}",
            codec=["gzip", "zstd"][number % 2],
        )
        shelf.files[f"m{number}"] = raw
        manifests.append({**row, "added_snapshot_id": 100 + number})
    metadata = metadata_of((schema, specs[0]), (schema, specs[1]))
    listed = pa.Table.from_pylist(manifests, MANIFEST_SCHEMA)
    alone = [read_manifest(shelf, row, metadata) for row in manifests]
    for threads in (1, 3):
        together = read_manifests(shelf, listed, metadata, threads=threads)
        assert together.keys() == {4, 9}
        for spec_id, table in together.items():
            wanted = pa.concat_tables([t for t in alone if t["spec_id"][0].as_py() == spec_id])
            assert sorted(map(str, table.to_pylist())) == sorted(map(str, wanted.to_pylist()))
    live = read_manifests(shelf, listed, metadata, live_only=True, columns=["record_count"])
    assert live[4].column_names == ["record_count", "spec_id", "manifest_path"]
    assert sorted(live[4]["record_count"].to_pylist()) == list(range(1, 21, 2))


def test_no_manifests_give_no_tables() -> None:
    assert (
        read_manifests(Shelf({}), MANIFEST_SCHEMA.empty_table(), metadata_of(UNPARTITIONED)) == {}
    )


def test_chosen_columns_come_in_the_canonical_order() -> None:
    table = entries_table([simple(5)], *UNPARTITIONED)
    read = read_back(table, columns={"record_count", "file_path", "sequence_number"})
    assert read.to_pylist() == [
        {
            "sequence_number": 7,
            "file_path": "memory:/t/5.parquet",
            "record_count": 5,
            "spec_id": 4,
            "manifest_path": "m.avro",
        }
    ]
    with pytest.raises(ValueError, match="not columns of manifest entries"):
        read_back(table, columns=["file_name"])


# Partition types.


def test_a_partition_column_that_was_dropped_is_typed_by_an_older_schema() -> None:
    schema, spec = table_of(["date"])
    table = entries_table([simple(partition={"1000": dt.date(1969, 7, 20)})], schema, spec)
    data, row = manifest_of(table, schema, spec)
    newer = Schema(NestedField(50, "other", LongType()), schema_id=8)
    for metadata in (
        metadata_of((newer, spec), (schema, UNPARTITIONED[1])),
        # Not even the table remembers; the file does.
        metadata_of((newer, spec)),
    ):
        read = read_manifest(Shelf({"m.avro": data}), row, metadata)
        assert read["partition"].to_pylist() == [{"1000": dt.date(1969, 7, 20)}]
        again, second = manifest_of(read, newer, spec)
        assert read_manifest(Shelf({"m.avro": again}), second, metadata)["partition"].equals(
            read["partition"]
        )


def test_a_partition_column_that_was_promoted_is_read_in_its_new_type() -> None:
    schema, spec = table_of(["int", "float", "decimal"])
    partition = {"1000": -4, "1001": 0.5, "1002": decimal.Decimal("-12.34")}
    data, row = manifest_of(
        entries_table([simple(partition=partition)], schema, spec), schema, spec
    )
    newer = Schema(
        NestedField(1, "c1", LongType()),
        NestedField(2, "c2", DoubleType()),
        NestedField(3, "c3", DecimalType(20, 2)),
        schema_id=8,
    )
    read = read_manifest(Shelf({"m.avro": data}), row, metadata_of((newer, spec)))
    assert read["partition"].to_pylist() == [partition]
    assert [field.type for field in read.schema.field("partition").type] == [
        pa.int64(),
        pa.float64(),
        pa.decimal128(20, 2),
    ]


def test_a_partition_field_that_the_file_lacks_is_null() -> None:
    schema, spec = table_of(["int"])
    data, row = manifest_of(
        entries_table([simple(partition={"1000": 1})], schema, spec), schema, spec
    )
    wider, wide = table_of(["int", "string"])
    read = read_manifest(Shelf({"m.avro": data}), row, metadata_of((wider, wide)))
    assert read["partition"].to_pylist() == [{"1000": 1, "1001": None}]


def test_a_void_field_of_a_forgotten_column_is_written_and_read() -> None:
    _, spec = table_of(["void", "int"])
    forgotten = Schema(NestedField(2, "c2", IntegerType()), schema_id=8)
    table = entries_table([simple(partition={"1001": 3})], forgotten, spec)
    data, row = manifest_of(table, forgotten, spec)
    assert [r["data_file"]["partition"] for r in fastavro.reader(io.BytesIO(data))] == [
        {"void": None, "int": 3}
    ]
    read = read_manifest(Shelf({"m.avro": data}), row, metadata_of((forgotten, spec)))
    assert read["partition"].to_pylist() == [{"1000": None, "1001": 3}]


def test_a_partition_value_of_another_type_is_refused() -> None:
    schema, spec = table_of(["string"])
    table = entries_table([simple(partition={"1000": "5"})], schema, spec)
    data, row = manifest_of(table, schema, spec)
    other, _ = table_of(["int"])
    with pytest.raises(CorruptFileError, match="invalid values"):
        read_manifest(Shelf({"m.avro": data}), row, metadata_of((other, spec)))


def test_nanoseconds_are_kept() -> None:
    schema = Schema(NestedField(1, "t", TimestampNanoType()), schema_id=3)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "t"), spec_id=4)
    table = entries_table([simple(partition={"1000": -1_234_567_891})], schema, spec)
    read = read_back(table, schema, spec, version=3)
    assert read["partition"].combine_chunks().field(0).cast(pa.int64()).to_pylist() == [
        -1_234_567_891
    ]


# Damage.


def two_blocks() -> tuple[bytes, dict[str, Any]]:
    """Return a manifest of 2 + 2 entries in two blocks."""
    table = entries_table([simple(n) for n in range(1, 5)], *UNPARTITIONED)
    parts = [read_container(manifest_of(table.slice(at, 2))[0], name="x") for at in (0, 2)]
    data = write_container(
        json.loads(parts[0].schema_json),
        [part.blocks[0] for part in parts],
        metadata={"format-version": "2"},
    )
    return data, {**manifest_of(table)[1], "manifest_length": len(data)}


def test_a_manifest_cut_at_a_block_edge_is_refused() -> None:
    sealed, row = two_blocks()
    data = unsealed(sealed)
    metadata = metadata_of(UNPARTITIONED)
    assert read_manifest(Shelf({"m.avro": data}), row, metadata).num_rows == 4
    cut = data[: data.index(data[-16:], data.index(data[-16:]) + 16) + 16]
    assert read_container(cut, name="x").objects == 2
    with pytest.raises(CorruptFileError, match=r"m\.avro has \d+ bytes"):
        read_manifest(Shelf({"m.avro": cut}), row, metadata)
    with pytest.raises(CorruptFileError, match=r"m\.avro contains 2 added files, .* declares 4"):
        read_manifest(Shelf({"m.avro": cut}), {**row, "manifest_length": len(cut)}, metadata)


@pytest.mark.parametrize(
    "column",
    [f"{w}_{what}_count" for w in ("added", "existing", "deleted") for what in ("files", "rows")],
)
def test_counts_that_differ_from_the_list_are_refused(column: str) -> None:
    data, row = two_blocks()
    shelf, metadata = Shelf({"m.avro": data}), metadata_of(UNPARTITIONED)
    with pytest.raises(CorruptFileError, match=column.removesuffix("_count").replace("_", " ")):
        read_manifest(shelf, {**row, column: row[column] + 1}, metadata)
    assert read_manifest(shelf, {**row, column: None}, metadata).num_rows == 4


def test_the_damaged_one_of_many_is_named() -> None:
    data, row = two_blocks()
    rows = [{**row, "manifest_path": f"m{n}.avro"} for n in range(5)]
    rows[3]["deleted_files_count"] = 1
    shelf = Shelf({one["manifest_path"]: data for one in rows})
    manifests = pa.Table.from_pylist(rows, MANIFEST_SCHEMA)
    with pytest.raises(CorruptFileError, match=r"^m3\.avro"):
        read_manifests(shelf, manifests, metadata_of(UNPARTITIONED))
    container = read_container(data, name="x")
    broken = [Block(b.objects, b"\xff" * len(b.data)) for b in container.blocks]
    shelf.files["m2.avro"] = write_container(json.loads(container.schema_json), broken, metadata={})
    rows[3]["deleted_files_count"] = 0
    rows[2]["manifest_length"] = len(shelf.files["m2.avro"])
    manifests = pa.Table.from_pylist(rows, MANIFEST_SCHEMA)
    with pytest.raises(CorruptFileError, match=r"^m2\.avro contains records that do not decode"):
        read_manifests(shelf, manifests, metadata_of(UNPARTITIONED))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"status": 3}, "unknown status"),
        ({"status": -1}, "unknown status"),
        ({"data_file": {"record_count": -1}}, "impossible number of rows"),
        ({"data_file": {"record_count": 2**62}}, "impossible number of rows"),
        ({"data_file": {"file_size_in_bytes": -1}}, "impossible size"),
        ({"data_file": {"file_size_in_bytes": 2**62}}, "impossible size"),
        ({"data_file": {"file_path": ""}}, "without a path"),
        ({"data_file": {"content": 1}}, "does not match the manifest"),
    ],
)
def test_impossible_entries_are_refused(changes: dict[str, Any], why: str) -> None:
    data, row = manifest_of(entries_table([simple()], *UNPARTITIONED))
    container = read_container(data, name="x")
    (entry,) = fastavro.reader(io.BytesIO(data))
    entry["data_file"].update(changes.get("data_file", {}))
    entry["status"] = changes.get("status", ADDED)
    sink = io.BytesIO()
    fastavro.writer(sink, json.loads(container.schema_json), [entry])
    row |= dict.fromkeys((c for c in row if c.endswith("_count")), None)
    row["manifest_length"] = len(sink.getvalue())
    with pytest.raises(CorruptFileError, match=why):
        read_manifest(Shelf({"m.avro": sink.getvalue()}), row, metadata_of(UNPARTITIONED))


def test_a_file_of_another_format_is_not_a_manifest() -> None:
    shelf, manifests, metadata = fixture("v2-unpartitioned")
    (row,) = manifests.to_pylist()
    listing = shelf.files["list"]
    with pytest.raises(CorruptFileError, match="lacks the fields with ids"):
        read_manifest(
            Shelf({row["manifest_path"]: listing}),
            {**row, "manifest_length": len(listing)},
            metadata,
        )
    with pytest.raises(CorruptFileError, match="lacks the fields with ids 500"):
        read_manifest_list(shelf, row["manifest_path"])


def test_a_field_of_another_type_is_refused() -> None:
    data, row = manifest_of(entries_table([simple()], *UNPARTITIONED))
    container = read_container(data, name="x")
    schema = json.loads(container.schema_json)
    schema["fields"][0]["type"] = "boolean"
    changed = write_container(schema, container.blocks, metadata={})
    with pytest.raises(CorruptFileError, match="of type bool instead of int32"):
        read_manifest(
            Shelf({"m.avro": changed}),
            {**row, "manifest_length": len(changed)},
            metadata_of(UNPARTITIONED),
        )


@pytest.mark.parametrize("column", ["status", "record_count", "content"])
def test_an_entry_that_lacks_a_number_is_refused(column: str) -> None:
    data, row = manifest_of(entries_table([simple()], *UNPARTITIONED))
    (entry,) = fastavro.reader(io.BytesIO(data))
    schema = json.loads(read_container(data, name="x").schema_json)
    outer = {field["name"]: field for field in schema["fields"]}
    inner = {field["name"]: field for field in outer["data_file"]["type"]["fields"]}
    field, holder = (
        (inner[column], entry["data_file"]) if column in inner else (outer[column], entry)
    )
    field["type"], holder[column] = ["null", field["type"]], None
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [entry])
    row["manifest_length"] = len(sink.getvalue())
    with pytest.raises(CorruptFileError, match=f"without {column}"):
        read_manifest(Shelf({"m.avro": sink.getvalue()}), row, metadata_of(UNPARTITIONED))


@pytest.mark.parametrize("lacking", ["key", "value"])
def test_an_entry_whose_map_lacks_a_value_is_refused(lacking: str) -> None:
    data, row = manifest_of(entries_table([simple()], *UNPARTITIONED))
    (entry,) = fastavro.reader(io.BytesIO(data))
    schema = json.loads(read_container(data, name="x").schema_json)
    (file,) = (field for field in schema["fields"] if field["name"] == "data_file")
    (counts,) = (field for field in file["type"]["fields"] if field["name"] == "value_counts")
    (pairs,) = (kind for kind in counts["type"] if kind != "null")
    for field in pairs["items"]["fields"]:
        field["type"] = ["null", field["type"]]
    entry["data_file"]["value_counts"] = [{"key": 1, "value": 1, lacking: None}]
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [entry])
    row["manifest_length"] = len(sink.getvalue())
    with pytest.raises(CorruptFileError, match="a list or map with a missing value"):
        read_manifest(Shelf({"m.avro": sink.getvalue()}), row, metadata_of(UNPARTITIONED))


def test_an_encrypted_manifest_is_refused() -> None:
    data, row = manifest_of(entries_table([simple()], *UNPARTITIONED), key_metadata=b"key")
    with pytest.raises(BadInputError, match="encrypted"):
        read_manifest(Shelf({"m.avro": data}), row, metadata_of(UNPARTITIONED))


def test_a_manifest_of_an_unknown_spec_is_refused() -> None:
    data, row = manifest_of(entries_table([simple()], *UNPARTITIONED), partition_spec_id=77)
    with pytest.raises(CorruptFileError, match="partition spec 77"):
        read_manifest(Shelf({"m.avro": data}), row, metadata_of(UNPARTITIONED))


@pytest.mark.parametrize(
    "changes",
    [{"manifest_path": ""}, {"content": 2}, {"manifest_length": -1}, {"added_rows_count": -5}],
)
def test_impossible_rows_of_a_list_are_refused(changes: dict[str, Any]) -> None:
    row = manifest_of(entries_table([simple()], *UNPARTITIONED))[1]
    raw = encode_manifest_list(
        pa.Table.from_pylist([{**row, **changes}], MANIFEST_SCHEMA),
        ManifestListHeader(
            format_version=2, snapshot_id=1, parent_snapshot_id=None, sequence_number=1
        ),
    )
    (column,) = changes
    with pytest.raises(CorruptFileError, match=f"impossible {column}"):
        read_manifest_list(Shelf({"l": raw}), "l")


# What must not be written.


@pytest.mark.parametrize(
    ("version", "content", "changes", "why"),
    [
        (1, 1, {"content": 1}, "version 1"),
        (1, 0, {"snapshot_id": None}, "snapshot_id: 1 values are missing"),
        (2, 0, {"content": 1}, "does not match the manifest"),
        (2, 1, {"content": 0}, "does not match the manifest"),
        (2, 0, {"status": 4}, "unknown status"),
        (2, 0, {"status": EXISTING}, "inherits a sequence number"),
        (2, 0, {"sequence_number": -1}, "unassigned sequence number"),
        (3, 0, {"file_path": None}, "file_path: 1 values are missing"),
    ],
)
def test_entries_that_the_format_forbids_are_not_written(
    version: int, content: int, changes: dict[str, Any], why: str
) -> None:
    table = entries_table([simple(**changes)], *UNPARTITIONED)
    with pytest.raises(ValueError, match=why):
        encode_manifest(
            table,
            ManifestContext(
                format_version=version,
                spec=UNPARTITIONED[1],
                schema=UNPARTITIONED[0],
                content=content,
            ),
        )


def test_a_list_of_version_1_takes_no_deletes() -> None:
    row = manifest_of(entries_table([simple(content=1)], *UNPARTITIONED), content=1)[1]
    with pytest.raises(BadInputError, match="version 1, which does not have delete files"):
        encode_manifest_list(
            pa.Table.from_pylist([row], MANIFEST_SCHEMA),
            ManifestListHeader(
                format_version=1, snapshot_id=1, parent_snapshot_id=None, sequence_number=0
            ),
        )


def test_chunks_and_slices_are_written_as_they_look() -> None:
    rows = [simple(n, column_sizes={1: n}, split_offsets=[n]) for n in range(1, 9)]
    table = entries_table(rows, *UNPARTITIONED)
    pieces = pa.concat_tables([table.slice(1, 2), table.slice(5, 1), table.slice(0, 0)])
    read = read_back(pieces)
    assert read["record_count"].to_pylist() == [2, 3, 6]
    assert read["column_sizes"].to_pylist() == [[{"key": 1, "value": n}] for n in (2, 3, 6)]
    assert read["split_offsets"].to_pylist() == [[2], [3], [6]]
