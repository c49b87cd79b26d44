"""Random schemas and rows of every Iceberg type, and files of them."""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lake.core.data.rows.reader import FileSlice, ReadSettings, read_batches
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema, arrow_type
from lake.core.table.manifests.data_files import DataFile

_YEAR = 366 * 86_400_000_000


def _unscaled(precision: int, scale: int) -> st.SearchStrategy[Any]:
    from decimal import Context, Decimal

    most = 10**precision - 1
    edges = st.sampled_from([0, 1, -1, 127, 128, -128, -129, 255, most, -most])
    numbers = st.one_of(edges, st.integers(-most, most)).map(lambda n: max(-most, min(most, n)))
    exact = Context(prec=precision)
    return numbers.map(lambda number: Decimal(number).scaleb(-scale, exact))


def _floats(width: int) -> st.SearchStrategy[float]:
    edges = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
    return st.one_of(edges, st.floats(width=width))  # type: ignore[arg-type]


_CHARACTERS = st.one_of(
    st.sampled_from("ab\ud7ff\ue000\uffff\U0010ffff\U00010000é"),
    st.characters(exclude_categories=["Cs"]),
)
_BYTES = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"\xff" * 20, b"a\xff" * 12, b"\x00" * 17])
)
# Values in physical form: days, microseconds, nanoseconds, 16 bytes.
PRIMITIVES: Mapping[IcebergType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    IntegerType(): st.integers(-(2**31), 2**31 - 1),
    LongType(): st.integers(-(2**63), 2**63 - 1),
    FloatType(): _floats(32),
    DoubleType(): _floats(64),
    DateType(): st.integers(-100_000, 100_000),
    TimeType(): st.integers(0, 86_400_000_000 - 1),
    TimestampType(): st.integers(-100 * _YEAR, 100 * _YEAR),
    TimestamptzType(): st.integers(-100 * _YEAR, 100 * _YEAR),
    StringType(): st.text(_CHARACTERS, max_size=20),
    BinaryType(): _BYTES,
    FixedType(5): st.binary(min_size=5, max_size=5),
    UUIDType(): st.one_of(
        st.binary(min_size=16, max_size=16), st.sampled_from([b"\x00" * 16, b"\xff" * 16])
    ),
    DecimalType(9, 2): _unscaled(9, 2),
    DecimalType(18, 0): _unscaled(18, 0),
    DecimalType(38, 10): _unscaled(38, 10),
}
NANOSECONDS: Mapping[IcebergType, st.SearchStrategy[Any]] = {
    TimestampNanoType(): st.integers(-(10**18), 10**18),
    TimestamptzNanoType(): st.integers(-(10**18), 10**18),
}
EVERY_TYPE = {**PRIMITIVES, **NANOSECONDS}
_KEYS = (IntegerType(), StringType(), UUIDType())


@st.composite
def schemas(draw: st.DrawFn, *, most: int = 4, depth: int = 2) -> Schema:
    """Draw a schema with nested columns; ids are unique, not in order."""
    ids = itertools.count(1)
    fields = [_field(draw, ids, f"c{index}", depth) for index in range(draw(st.integers(1, most)))]
    return Schema(*fields)


def _field(draw: st.DrawFn, ids: Iterator[int], name: str, depth: int) -> NestedField:
    kind = _kind(draw, ids, depth)
    return NestedField(next(ids), name, kind, required=draw(st.booleans()))


def _kind(draw: st.DrawFn, ids: Iterator[int], depth: int) -> IcebergType:
    shape = draw(st.sampled_from(["primitive", "struct", "list", "map"])) if depth else "primitive"
    if shape == "struct":
        count = draw(st.integers(1, 3))
        return StructType(*(_field(draw, ids, f"f{index}", depth - 1) for index in range(count)))
    if shape == "list":
        element = _kind(draw, ids, depth - 1)
        return ListType(next(ids), element, element_required=draw(st.booleans()))
    if shape == "map":
        key = draw(st.sampled_from(_KEYS))
        value = _kind(draw, ids, depth - 1)
        return MapType(next(ids), key, next(ids), value, value_required=draw(st.booleans()))
    return draw(st.sampled_from(list(PRIMITIVES)))


def values(kind: IcebergType, *, required: bool) -> st.SearchStrategy[Any]:
    """Draw values of a type, as PyArrow takes them."""
    some = _values(kind)
    return some if required else st.one_of(st.none(), some)


def _values(kind: IcebergType) -> st.SearchStrategy[Any]:
    if isinstance(kind, StructType):
        return st.fixed_dictionaries(
            {item.name: values(item.field_type, required=item.required) for item in kind.fields}
        )
    if isinstance(kind, ListType):
        return st.lists(values(kind.element_type, required=kind.element_required), max_size=3)
    if isinstance(kind, MapType):
        value = values(kind.value_type, required=kind.value_required)
        return st.dictionaries(_values(kind.key_type), value, max_size=3).map(
            lambda found: list(found.items())
        )
    return st.none() if isinstance(kind, UnknownType) else EVERY_TYPE[kind]


def batches(schema: Schema, *, most: int = 12) -> st.SearchStrategy[pa.RecordBatch]:
    """Draw rows of a schema."""
    row = st.fixed_dictionaries(
        {item.name: values(item.field_type, required=item.required) for item in schema.fields}
    )
    return st.lists(row, min_size=1, max_size=most).map(lambda rows: batch_of(schema, rows))


def batch_of(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows as a batch of the schema."""
    columns = [
        pa.array([row[item.name] for row in rows], arrow_type(item.field_type))
        for item in schema.fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def fit_for(kind: str, column: pa.Array) -> pa.Array:
    """Return a column without the times that ORC cannot hold: those before 1970 lose their fractions."""
    nested = column.type
    if kind == "avro":
        return column
    if pa.types.is_timestamp(nested):
        second = 10**9 if nested.unit == "ns" else 10**6
        numbers = [
            value if value is None or value >= 0 else value // second * second
            for value in column.cast(pa.int64()).to_pylist()
        ]
        return pa.array(numbers, pa.int64()).cast(nested)
    mask = column.is_null()
    if pa.types.is_struct(nested):
        parts = [fit_for(kind, column.field(at)) for at in range(nested.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(nested), mask=mask)
    if pa.types.is_map(nested):
        items = fit_for(kind, column.items)
        return pa.MapArray.from_arrays(column.offsets, column.keys, items, type=nested, mask=mask)
    if pa.types.is_list(nested):
        values = fit_for(kind, column.values)
        return pa.ListArray.from_arrays(column.offsets, values, type=nested, mask=mask)
    return column


def fitting(kind: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [fit_for(kind, column) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def shown(rows: Any) -> str:
    """Return rows in a form that distinguishes -0.0 from 0.0 but not NaN from NaN, nor UUIDs from 16 bytes."""
    return repr(_plain(rows))


def _plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def write_settings(
    folder: Path,
    schema: Schema,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    *,
    target_bytes: int = 512 * 1024 * 1024,
    **properties: str,
) -> WriteSettings:
    """Return settings for files in a folder; ``__`` in property names stands for ``.``, ``_`` for ``-``."""
    return WriteSettings(
        schema=schema,
        spec=spec,
        data_location=f"file://{folder}",
        location=f"file://{folder}",
        operation_id=str(uuid.uuid4()),
        target_bytes=target_bytes,
        properties={k.replace("__", ".").replace("_", "-"): v for k, v in properties.items()},
    )


def write(settings: WriteSettings, *rows: pa.RecordBatch) -> list[DataFile]:
    """Write batches and return the files."""
    with open_writer(Storage(), settings, task=0, attempt="a") as writer:
        for batch in rows:
            writer.write(batch)
        return writer.close()


def read_settings(
    schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **more: Any
) -> ReadSettings:
    """Return settings that read all columns by default."""
    return ReadSettings(
        **{"projection": schema, "schema": schema, "specs": {spec.spec_id: spec}, **more}
    )


def read(settings: ReadSettings, *files: DataFile | FileSlice) -> pa.Table:
    """Read files (or slices of them) in turn."""
    slices = [file if isinstance(file, FileSlice) else FileSlice.of(file) for file in files]
    found = [batch for item in slices for batch in read_batches(Storage(), item, settings)]
    return pa.Table.from_batches(found, arrow_schema(settings.projection))


def described(path: Path, rows: int, spec_id: int = 0) -> FileSlice:
    """Return a file that something else wrote, as the table's metadata would describe it."""
    return FileSlice(
        path=f"file://{path}", size_bytes=path.stat().st_size, record_count=rows, spec_id=spec_id
    )
