"""Convert Iceberg's types to ORC's and back; attributes of ORC types store what ORC lacks.

Source: https://iceberg.apache.org/spec/#orc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lake.core.base.units import natural_number
from lake.core.spec.types.arrow_schema import FIELD_ID, arrow_type, parts_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_ID, _REQUIRED = b"iceberg.id", b"iceberg.required"
_LONG, _BINARY, _LENGTH = b"iceberg.long-type", b"iceberg.binary-type", b"iceberg.length"
_UNIT = b"iceberg.timestamp-unit"
_UUID_BYTES = 16
_MOST_FIXED = (1 << 31) - 1


def orc_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that PyArrow writes as the ORC schema of a table's rows.

    An attribute marks required fields; the ORC types themselves are nullable, except keys of maps.
    """
    return pa.schema([_orc_field(item) for item in schema.fields])


def column_numbers(schema: Schema) -> dict[str, int]:
    """Return the ORC column number of each column, by its dotted name.

    The root is 0; a type precedes its nested types. Source: https://orc.apache.org/specification/ORCv1/#types.
    """
    found: dict[str, int] = {}
    for item in schema.fields:
        _number(item, schema, found)
    return found


def _number(item: NestedField, schema: Schema, found: dict[str, int]) -> None:
    found[schema.find_column_name(item.field_id) or item.name] = len(found) + 1
    for part in parts_of(item.field_type):
        _number(part, schema, found)


def _orc_field(item: NestedField) -> pa.Field:
    attributes = {
        _ID: str(item.field_id).encode(),
        _REQUIRED: str(item.required).lower().encode(),
        **_attributes(item.field_type),
    }
    return pa.field(item.name, _orc_type(item.field_type), metadata=attributes)


def _orc_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_orc_field(item) for item in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_orc_field(kind.element_field))
    if isinstance(kind, MapType):
        key = _orc_field(kind.key_field).with_nullable(nullable=False)
        return pa.map_(key, _orc_field(kind.value_field))
    if isinstance(kind, TimeType):
        return pa.int64()
    if isinstance(kind, UUIDType | FixedType):
        return pa.binary()
    return arrow_type(kind)


def _attributes(kind: IcebergType) -> dict[bytes, bytes]:
    if isinstance(kind, LongType):
        return {_LONG: b"LONG"}
    if isinstance(kind, TimeType):
        return {_LONG: b"TIME"}
    if isinstance(kind, TimestampType | TimestamptzType):
        return {_UNIT: b"MICROS"}
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        return {_UNIT: b"NANOS"}
    if isinstance(kind, BinaryType):
        return {_BINARY: b"BINARY"}
    if isinstance(kind, UUIDType):
        return {_BINARY: b"UUID"}
    if isinstance(kind, FixedType):
        return {_BINARY: b"FIXED", _LENGTH: str(len(kind)).encode()}
    return {}


def table_type(item: pa.Field, *, exact: bool = False) -> pa.Field:
    """Return a field of an ORC file with its field id and the Iceberg type that its attributes describe.

    Args:
        item: the field.
        exact: times have nanoseconds if the file does not declare their unit.
    """
    attributes = item.metadata or {}
    metadata = {FIELD_ID: attributes[_ID]} if _ID in attributes else None
    return pa.field(
        item.name, _table_type(item.type, attributes, exact=exact), item.nullable, metadata
    )


def _table_type(
    kind: pa.DataType, attributes: dict[bytes, bytes], *, exact: bool = False
) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([table_type(item, exact=exact) for item in kind])
    if pa.types.is_map(kind):
        parts = (table_type(item, exact=exact) for item in (kind.key_field, kind.item_field))
        return pa.map_(*parts)
    if pa.types.is_list(kind):
        return pa.list_(table_type(kind.value_field, exact=exact))
    if pa.types.is_timestamp(kind):
        fine = attributes.get(_UNIT, b"NANOS" if exact else b"MICROS") == b"NANOS"
        return pa.timestamp("ns" if fine else "us", kind.tz)
    if kind == pa.int64() and attributes.get(_LONG) == b"TIME":
        return pa.time64("us")
    if pa.types.is_binary(kind):
        return _binary_type(attributes)
    return kind


def _binary_type(attributes: dict[bytes, bytes]) -> pa.DataType:
    if attributes.get(_BINARY) == b"UUID":
        return pa.binary(_UUID_BYTES)
    length = natural_number(attributes.get(_LENGTH, b"").decode(errors="replace"))
    if attributes.get(_BINARY) == b"FIXED" and length is not None and length <= _MOST_FIXED:
        return pa.binary(length)
    return pa.binary()
