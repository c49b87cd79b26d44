"""Partitioning of rows: partition transforms over Arrow columns.

Source: https://iceberg.apache.org/spec/#partition-transforms.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    HourTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from lake.core.base.arrow import nested_field, one_array
from lake.core.base.errors import BadInputError, CorruptFileError, RefusedError
from lake.core.spec.types.arrow_schema import field_path
from lake.core.spec.types.single_values import (
    from_single_values,
    partition_type,
    single_values,
    source_type,
)

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

Partition = tuple[bytes | None, ...]
Indices = npt.NDArray[np.int64]

_ALIGNMENT = 16
_NANOSECONDS = 1000
_HOUR = 3600 * 1_000_000
_TIMES = (TimestampType, TimestamptzType)
# 38 digits and the sign of a value that was truncated below the least one.
_DIGITS = Context(prec=39)


def partition_columns(batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema) -> list[pa.Array]:
    """Return one array of partition values per field of the spec.

    Raises:
        BadInputError: the partition of a row does not fit its field's type.
    """
    return [fitting(batch, schema, field.source_id, field.transform) for field in spec.fields]


def fitting(
    batch: pa.RecordBatch, schema: Schema, source_id: int, transform: Transform[Any, Any]
) -> pa.Array:
    """Return the values of a transform of a column as `transformed` does.

    Raises:
        BadInputError: one does not fit the type of partition fields: other engines would store another value, and
            filters would lose the row.
    """
    found = transformed(batch, schema, source_id, transform)
    if isinstance(transform, VoidTransform | IdentityTransform):
        return found
    source = source_column(batch, schema, source_id)
    lost = np.flatnonzero(unfit(source, found).to_numpy(zero_copy_only=False))
    if len(lost):  # check: partition-fits
        kind = schema.find_type(source_id)
        raise BadInputError(
            f"the value {_shown(source[int(lost[0])], kind)} of column {schema.find_column_name(source_id)} has no "
            f"partition: its {transform} does not fit the type {transform.result_type(kind)}",
            hint="load it into a table with another partitioning, or correct it",
        )
    return found


def unfit(source: pa.Array, values: pa.Array) -> pa.BooleanArray:
    """Return which values of a transform are missing because they do not fit; see `transformed_values`."""
    return pc.and_(pc.is_null(values), pc.is_valid(source))


def _shown(value: pa.Scalar, kind: IcebergType) -> str:
    """Return a value as text; Python's times end with the year 9999."""
    if isinstance(kind, _TIMES):
        return str(np.datetime64(value.cast(pa.int64()).as_py(), "us"))
    return str(value.as_py())


def transformed(
    batch: pa.RecordBatch, schema: Schema, source_id: int, transform: Transform[Any, Any]
) -> pa.Array:
    """Return the values of a transform of a column; for void, the batch and the schema need not have the column.

    A value that does not fit the type of partition fields is NULL.

    Raises:
        RefusedError: lake does not know the transform.
    """
    if isinstance(transform, VoidTransform):
        kind = source_type(source_id, [schema])
        return pa.nulls(batch.num_rows, from_single_values([], kind).type)
    source = source_column(batch, schema, source_id)
    return transformed_values(source, schema.find_type(source_id), transform)


def transformed_values(
    source: pa.Array, kind: IcebergType, transform: Transform[Any, Any]
) -> pa.Array:
    """Return the values of a transform of an array of a type.

    NULL for a value that does not fit the result's type: hours after the year 246,953, the truncation of a number
    near the least one, of a decimal to one more digit.

    Raises:
        RefusedError: lake does not know the transform.
    """
    if isinstance(transform, UnknownTransform):
        raise RefusedError(
            "the table is partitioned by a transform that lake does not know: lake can only read the table"
        )
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(source), source.type)
    if isinstance(transform, IdentityTransform):
        return source
    if isinstance(kind, UUIDType):
        source = source.cast(pa.binary())
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        source = _microseconds(source)
        kind = TimestampType() if isinstance(kind, TimestampNanoType) else TimestamptzType()
    if isinstance(transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
        return _truncated(source, transform.width)
    if isinstance(transform, TruncateTransform) and isinstance(kind, DecimalType):
        return _truncated_decimals(source, kind, transform.width)
    if isinstance(transform, HourTransform) and isinstance(kind, _TIMES):
        return _hours(source)
    found = one_array(transform.pyarrow_transform(kind)(_aligned(source)))
    lost = unfit(source, found)
    if isinstance(kind, (DateType, *_TIMES)) and pc.any(lost, min_count=0).as_py():
        # PyIceberg's Rust transforms end with the year 262,142, numpy's do not.
        return pc.if_else(lost, _calendar_units(source, str(transform)), found)
    return found


def _numbers(column: pa.Array) -> Any:
    """Return integers or times as integers, as a masked array."""
    kind = pa.int32() if column.type.bit_width == 32 else pa.int64()  # noqa: PLR2004
    numbers = column.cast(kind)
    mask = numbers.is_null().to_numpy(zero_copy_only=False)
    return np.ma.MaskedArray(numbers.fill_null(0).to_numpy(), mask)


def _calendar_units(column: pa.Array, unit: str) -> pa.Array:
    """Return the months or years since 1970 of dates, or of times in microseconds."""
    numbers = _numbers(column).data.astype(np.int64)
    days = numbers if pa.types.is_date(column.type) else np.floor_divide(numbers, 24 * _HOUR)
    found = days.view("datetime64[D]").astype(
        "datetime64[M]" if unit == "month" else "datetime64[Y]"
    )
    return pa.array(found.astype(np.int64).astype(np.int32))


def _hours(column: pa.Array) -> pa.Array:
    numbers = _numbers(column)
    hours = np.floor_divide(numbers.data, _HOUR)
    limits = np.iinfo(np.int32)
    lost = (hours < limits.min) | (hours > limits.max)
    return pa.array(np.where(lost, 0, hours).astype(np.int32), mask=numbers.mask | lost)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    numbers = _numbers(column)
    rest = np.mod(numbers.data.astype(np.int64), width).astype(numbers.data.dtype)
    lost = numbers.data < np.iinfo(numbers.data.dtype).min + rest
    return pa.array(np.where(lost, 0, numbers.data - rest), mask=numbers.mask | lost)


def _truncated_decimals(column: pa.Array, kind: DecimalType, width: int) -> pa.Array:
    """Truncate unscaled values, each different one once."""
    encoded = column.dictionary_encode()
    most, unit = 10**kind.precision, Decimal(1).scaleb(-kind.scale)
    found: list[Decimal | None] = []
    for value in encoded.dictionary.to_pylist():
        unscaled = int(value.scaleb(kind.scale, _DIGITS))
        floor = unscaled - unscaled % width
        found.append(None if floor <= -most else _DIGITS.multiply(Decimal(floor), unit))
    return pa.array(found, column.type).take(encoded.indices)


def group_rows(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Split a batch by partition; the rows of each keep their order."""
    groups = group_indices(batch, spec, schema)
    if len(groups) > 1:
        order = np.concatenate([rows for _, rows in groups])
        batch = batch if np.all(np.diff(order) == 1) else batch.take(pa.array(order))
    start = 0
    for partition, rows in groups:
        yield partition, batch.slice(start, len(rows))
        start += len(rows)


def group_indices(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema
) -> list[tuple[Partition, Indices]]:
    """Return each partition of a batch with the ascending indices of its rows."""
    everything = np.arange(batch.num_rows)
    if spec.is_unpartitioned() or batch.num_rows == 0:
        return [((), everything)] if batch.num_rows else []
    columns = partition_columns(batch, spec, schema)
    codes = _codes(columns)
    if codes.min() == codes.max():
        return [(_partition_at(columns, spec, schema, [0])[0], everything)]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    partitions = _partition_at(columns, spec, schema, order[starts])
    return list(zip(partitions, np.split(order, starts[1:]), strict=True))


def partition_number(partition: Partition, buckets: int) -> int:
    """Return a partition's bucket, below ``buckets`` and the same in every process."""
    text = b"\x00".join(b"-" if value is None else b"+" + value for value in partition)
    return zlib.crc32(text) % buckets


def source_column(batch: pa.RecordBatch, schema: Schema, source_id: int) -> pa.Array:
    """Return a column by its field id; it may be inside structs.

    Raises:
        CorruptFileError: the schema does not have the column.
    """
    name, path = schema.find_column_name(source_id), field_path(schema, source_id)
    if name is None or path is None:
        raise CorruptFileError(
            f"the schema lacks column {source_id}, a source column of the partition spec"
        )
    if batch.schema.get_field_index(name) >= 0:
        return batch.column(name)
    return nested_field(batch.column(path[0].name), (item.name for item in path[1:]))


def _microseconds(column: pa.Array) -> pa.Array:
    """Return nanosecond times rounded down to microseconds; all transforms give the same values for both.

    PyIceberg's Rust transforms round nanoseconds before 1970 towards 1970, and do not support their hours.
    """
    numbers = column.cast(pa.int64())
    mask = numbers.is_null().to_numpy(zero_copy_only=False)
    floors = np.floor_divide(numbers.fill_null(0).to_numpy(), _NANOSECONDS)
    return pa.array(floors, pa.int64(), mask=mask).cast(pa.timestamp("us", column.type.tz))


def _aligned(column: pa.Array) -> pa.Array:
    """Return a column whose buffers are aligned for PyIceberg's Rust transforms; a mapped file's may not be."""
    if all(buffer is None or buffer.address % _ALIGNMENT == 0 for buffer in column.buffers()):
        return column
    return pa.concat_arrays([column, column.slice(0, 0)])


def _codes(columns: Sequence[pa.Array]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return an integer for each row; equal integers mean equal partitions."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if pa.types.is_null(column.type):
            continue
        encoded = _by_bits(column).dictionary_encode("encode")
        size = len(encoded.dictionary)
        codes = codes * (size + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        if size and codes.max() > 2**40:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def _by_bits(column: pa.Array) -> pa.Array:
    """Return floats as integers: -0.0 and 0.0 are different partitions, all NaN are one."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    same = pc.if_else(pc.is_nan(column), nan, column)
    return same.view(pa.int32() if pa.types.is_float32(column.type) else pa.int64())


def _partition_at(
    columns: Sequence[pa.Array], spec: PartitionSpec, schema: Schema, rows: Any
) -> list[Partition]:
    index = pa.array(rows, pa.int64())
    kinds = [field.field_type for field in partition_type(spec, [schema]).fields]
    values = [
        single_values(typed(column.take(index), kind), kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return list(zip(*values, strict=True))


def typed(column: pa.Array, kind: Any) -> pa.Array:
    """Return partition values with the Arrow type of their Iceberg type."""
    expected = from_single_values([], kind).type
    return column if column.type == expected else column.cast(expected)
