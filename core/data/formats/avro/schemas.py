"""Convert Iceberg schemas to Avro schemas as Iceberg Java does.

Format: https://iceberg.apache.org/spec/#avro; names of types: Iceberg's TypeToSchema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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

from lake.core.base.errors import RefusedError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _instant(unit: str, *, utc: bool) -> dict[str, Any]:
    return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": utc}


_TYPES: Mapping[IcebergType, Any] = {
    BooleanType(): "boolean",
    IntegerType(): "int",
    LongType(): "long",
    FloatType(): "float",
    DoubleType(): "double",
    DateType(): {"type": "int", "logicalType": "date"},
    TimeType(): {"type": "long", "logicalType": "time-micros"},
    TimestampType(): _instant("micros", utc=False),
    TimestamptzType(): _instant("micros", utc=True),
    TimestampNanoType(): _instant("nanos", utc=False),
    TimestamptzNanoType(): _instant("nanos", utc=True),
    StringType(): "string",
    BinaryType(): "bytes",
    UnknownType(): "null",
}


def avro_schema(schema: Schema, name: str) -> dict[str, Any]:
    """Return the Avro schema of a table's rows. It may define a type more than once; see `defined_once`.

    Raises:
        RefusedError: it contains a type that lake does not support.
    """
    return _record(schema.fields, name)


def decimal_bytes(precision: int) -> int:
    """Return the number of bytes of a decimal with the given precision."""
    # One bit for the sign.
    most: int = 10**precision - 1
    return (most.bit_length() + 8) // 8


def _record(fields: tuple[NestedField, ...], name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [_field(item) for item in fields],
    }


def _field(item: NestedField) -> dict[str, Any]:
    name = _sanitized(item.name)
    kind = _type(item)
    found: dict[str, Any] = {"name": name, "type": kind}
    if item.optional and kind != "null":
        found["type"] = ["null", kind]
    if item.optional:
        found["default"] = None
    if name != item.name:
        found["iceberg-field-name"] = item.name
    return {**found, "field-id": item.field_id}


def _type(item: NestedField) -> Any:
    kind = item.field_type
    if isinstance(kind, StructType):
        return _record(kind.fields, f"r{item.field_id}")
    if isinstance(kind, ListType):
        element = _optional(kind.element_field)
        return {"type": "array", "items": element, "element-id": kind.element_id}
    if isinstance(kind, MapType):
        return _map(kind)
    if isinstance(kind, FixedType):
        return _fixed(f"fixed_{len(kind)}", len(kind), {})
    if isinstance(kind, UUIDType):
        return _fixed("uuid_fixed", 16, {"logicalType": "uuid"})
    if isinstance(kind, DecimalType):
        meaning = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        name = f"decimal_{kind.precision}_{kind.scale}"
        return _fixed(name, decimal_bytes(kind.precision), meaning)
    if kind not in _TYPES:
        raise RefusedError(f"columns of type {kind} are not supported in Avro files")
    return _TYPES[kind]


def _map(kind: MapType) -> dict[str, Any]:
    key, value = kind.key_field, kind.value_field
    if isinstance(kind.key_type, StringType):
        values = _optional(value)
        return {
            "type": "map",
            "values": values,
            "key-id": key.field_id,
            "value-id": value.field_id,
        }
    name = f"k{key.field_id}_v{value.field_id}"
    items = _record((key, value), name)
    return {"type": "array", "items": items, "logicalType": "map"}


def _optional(item: NestedField) -> Any:
    kind = _type(item)
    return ["null", kind] if item.optional else kind


def _fixed(name: str, size: int, meaning: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **meaning}


def defined_once(schema: Any) -> Any:
    """Return a schema that defines each named type at its first use only, as Avro requires."""
    return _defined_once(schema, set())


def _defined_once(schema: Any, defined: set[str]) -> Any:
    if isinstance(schema, list):
        return [_defined_once(item, defined) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "fixed":
        if schema["name"] in defined:
            return schema["name"]
        defined.add(schema["name"])
    return {key: _defined_once(value, defined) for key, value in schema.items()}


def _sanitized(name: str) -> str:
    """Return a valid Avro name: other characters become hexadecimal codes, as in Iceberg Java."""
    if _NAME.fullmatch(name):
        return name
    return "".join(
        char
        if _NAME.fullmatch(f"_{char}") and (index or not char.isdigit())
        else f"_{char}"
        if char.isdigit()
        else f"_x{ord(char):X}"
        for index, char in enumerate(name)
    )
