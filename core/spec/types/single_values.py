"""Partition values: their types, and Arrow columns to and from Iceberg's single values.

Format: https://iceberg.apache.org/spec/#binary-single-value-serialization.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import DecimalException
from struct import error as StructError  # noqa: N812 - a class with a module's name
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    NestedField,
    PrimitiveType,
    StructType,
    UnknownType,
    UUIDType,
)

from lake.core.base.errors import BadInputError
from lake.core.spec.types.arrow_types import ARROW_TYPES, primitive_type
from lake.core.spec.types.type_text import type_text

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_DECIMAL_BYTES = 16

_ICEBERG: Mapping[pa.DataType, PrimitiveType] = {
    arrow: iceberg
    for iceberg, arrow in ARROW_TYPES.items()
    if isinstance(iceberg, PrimitiveType) and not isinstance(iceberg, UUIDType)
}


def searched_schemas(metadata: TableMetadata) -> list[Schema]:
    """Return a table's schemas in the order in which the source columns of its specs are searched."""
    return [metadata.schema(), *reversed(metadata.schemas)]


def partition_type(spec: PartitionSpec, schemas: Sequence[Schema]) -> StructType:
    """Return a spec's partition struct; every field may be null.

    Args:
        spec: the spec.
        schemas: the schemas to search for the source columns, the preferred one first. A column that
            none of them has gives `UnknownType`, or the result type of a transform with a fixed one.
    """
    fields = []
    for field in spec.fields:
        source = source_type(field.source_id, schemas)
        kind = field.transform.result_type(source)
        fields.append(NestedField(field.field_id, field.name, kind, required=False))
    return StructType(*fields)


def stored_partition_type(spec: PartitionSpec, schema: Schema, struct: pa.StructType) -> StructType:
    """Return the partition struct of a stored column; types that the schema lacks are taken from the column."""
    fields = []
    for field in partition_type(spec, [schema]).fields:
        kind = field.field_type
        index = struct.get_field_index(str(field.field_id))
        if isinstance(kind, UnknownType) and index >= 0:
            kind = iceberg_type(struct.field(index).type)
        # Avro does not allow a union of null with itself.
        required = isinstance(kind, UnknownType)
        fields.append(NestedField(field.field_id, field.name, kind, required=required))
    return StructType(*fields)


def source_type(source_id: int, schemas: Sequence[Schema]) -> IcebergType:
    """Return a field's type in the first schema that has it, else `UnknownType`."""
    for schema in schemas:
        try:
            return schema.find_type(source_id)
        except ValueError:
            continue
    return UnknownType()


def arrow_type(field_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of a partition value of an Iceberg type.

    Raises:
        BadInputError: a table cannot be partitioned by this type.
    """
    found = primitive_type(field_type)
    if found is None:
        raise BadInputError(f"lake does not know the type {field_type} of a partition value")
    return found


def iceberg_type(data_type: pa.DataType) -> PrimitiveType:
    """Return the Iceberg type of an Arrow partition column; 16 fixed bytes could also be a UUID."""
    if pa.types.is_decimal128(data_type):
        return DecimalType(data_type.precision, data_type.scale)
    if pa.types.is_fixed_size_binary(data_type):
        return FixedType(data_type.byte_width)
    if data_type not in _ICEBERG:
        raise BadInputError(
            f"lake does not know the type {type_text(data_type)} of a partition column"
        )
    return _ICEBERG[data_type]


def partition_struct(struct_type: StructType) -> pa.StructType:
    """Return the Arrow struct of a partition; its children are named by field id."""
    return pa.struct(
        [(str(field.field_id), arrow_type(field.field_type)) for field in struct_type.fields]
    )


def struct_array(children: Sequence[pa.Array], struct_type: pa.StructType, rows: int) -> pa.Array:
    """Return a struct column without nulls, possibly without children."""
    if not children:
        return pa.Array.from_buffers(struct_type, rows, [None])
    return pa.StructArray.from_arrays(children, fields=list(struct_type))


def single_values(column: pa.Array, field_type: IcebergType) -> list[bytes | None]:
    """Return a column's values in Iceberg's binary single-value form."""
    return _by_distinct(column, lambda value: single_value(value, field_type))


def single_value(value: pa.Scalar, field_type: IcebergType) -> bytes | None:
    """Return one Arrow value in Iceberg's binary single-value form.

    Raises:
        BadInputError: the value is not one of the type, for example if `truncate` made a decimal with more digits.
    """
    if not value.is_valid:
        return None
    if not isinstance(field_type, PrimitiveType):
        raise BadInputError(f"lake does not know the type {field_type} of a partition value")
    if pa.types.is_temporal(value.type):
        return to_bytes(field_type, value.value)
    found = value.as_py()
    # There are many NaN bit patterns, but one partition for all of them.
    found = math.nan if isinstance(found, float) and math.isnan(found) else found
    try:
        return to_bytes(field_type, found)
    except ValueError as error:
        raise BadInputError(f"{str(found)[:40]} is not a {field_type}") from error


def from_single_values(values: Sequence[bytes | None], field_type: IcebergType) -> pa.Array:
    """Return the Arrow column of single values.

    Raises:
        BadInputError: a value is not a binary single value of the type.
    """
    encoded = pa.array(values, pa.binary()).dictionary_encode()
    decoded = [_from_single_value(value, field_type) for value in encoded.dictionary.to_pylist()]
    try:
        return pa.array(decoded, arrow_type(field_type)).take(encoded.indices)
    except pa.ArrowException as error:
        raise BadInputError(
            f"one of {len(values)} partition values is not a binary {field_type}"
        ) from error


def _from_single_value(value: bytes, field_type: IcebergType) -> Any:
    problem = BadInputError(f"{value[:40]!r} is not a binary {field_type}")
    if not isinstance(field_type, PrimitiveType) or isinstance(field_type, UnknownType):
        raise problem
    try:
        decoded: Any = from_bytes(field_type, value)
    except (ValueError, StructError, DecimalException) as error:
        raise problem from error
    if isinstance(field_type, UUIDType):
        return value
    return decoded


def _by_distinct(column: pa.Array, convert: Callable[[pa.Scalar], Any]) -> list[Any]:
    encoded = column.dictionary_encode()
    distinct = [convert(value) for value in encoded.dictionary]
    indices = encoded.indices.to_pylist()
    return [None if index is None else distinct[index] for index in indices]


def bounds(column: pa.Array, field_type: IcebergType) -> dict[str, Any]:
    """Return the field summary of a column: whether it contains nulls or NaNs, and its bounds.

    Iceberg orders floats as IEEE 754 does, -0.0 before 0.0; a bound is never NaN.
    """
    contains_null = column.null_count > 0
    contains_nan = False
    values = column.drop_null()
    if pa.types.is_floating(column.type):
        nan = pc.is_nan(values)
        contains_nan = bool(pc.any(nan, min_count=0).as_py())
        values = values.filter(pc.invert(nan))
    lowest, highest = _extremes(values)
    return {
        "contains_null": contains_null,
        "contains_nan": contains_nan,
        "lower_bound": None if lowest is None else single_value(lowest, field_type),
        "upper_bound": None if highest is None else single_value(highest, field_type),
    }


def _extremes(values: pa.Array) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    if len(values) == 0:
        return None, None
    if pa.types.is_null(values.type):
        return None, None
    order = pc.min_max(values)
    lowest, highest = order["min"], order["max"]
    if pa.types.is_floating(values.type):
        negative_zero = pa.scalar(-0.0, values.type)
        signs = np.signbit(values.to_numpy(zero_copy_only=False))
        if lowest.as_py() == 0 and signs.any():
            lowest = negative_zero
        if highest.as_py() == 0:
            zero = values.to_numpy(zero_copy_only=False) == 0
            highest = pa.scalar(0.0, values.type) if (zero & ~signs).any() else negative_zero
    return lowest, highest


def from_avro(column: pa.Array, field_type: IcebergType) -> pa.Array:
    """Return a partition column decoded from Avro: numbers, text, or bytes (decimals are big-endian).

    Raises:
        pa.ArrowInvalid: a value does not fit the type.
    """
    target = arrow_type(field_type)
    if _avro_form(target) != _avro_form(column.type):
        raise pa.ArrowInvalid(f"{column.type} instead of {field_type}")
    if isinstance(field_type, DecimalType):
        return _decimals(column, target)
    if pa.types.is_temporal(target):
        width = pa.int32() if pa.types.is_date32(target) else pa.int64()
        return column.cast(width).cast(target)
    return column.cast(target)


def _avro_form(data_type: pa.DataType) -> str:
    """Return a type's representation in Avro; all widths of numbers are one, and so are all bytes."""
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        return "integer"
    if pa.types.is_floating(data_type):
        return "floating"
    if (
        pa.types.is_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or pa.types.is_decimal(data_type)
    ):
        return "bytes"
    return str(data_type)


def _decimals(column: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_fixed_size_binary(column.type):
        return from_single_values(column.cast(pa.binary()).to_pylist(), iceberg_type(target))
    width = column.type.byte_width
    rows = len(column)
    if width > _DECIMAL_BYTES:
        raise pa.ArrowInvalid(f"decimals of {width} bytes")
    raw = np.frombuffer(column.buffers()[1], np.uint8, rows * width, column.offset * width)
    raw = raw.reshape(rows, width)
    wide = np.empty((rows, _DECIMAL_BYTES), np.uint8)
    wide[:, :width] = raw[:, ::-1]
    wide[:, width:] = np.where(raw[:, :1] & 0x80, 0xFF, 0)
    valid = np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    decimals = pa.Array.from_buffers(target, rows, [pa.py_buffer(valid), pa.py_buffer(wide)])
    decimals.validate(full=True)
    return decimals
