"""Default values of columns, for fields for which neither a file nor a source contains a value.

The initial default is the value in data files written before the field was added. The write default is the value in
new rows whose source does not contain the field. An explicit NULL of the source remains NULL.
Source: https://iceberg.apache.org/spec/#default-values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lake.core.base.arrow import is_list
from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.text_encoding import json_values
from lake.core.spec.types.arrow_schema import arrow_type, parts_of


def initial_column(item: NestedField, rows: int) -> pa.Array:
    """Return a field's initial default, or NULL, as a column.

    Raises:
        CorruptFileError: the default is not a value of the field's type.
    """
    return _column(item, item.initial_default, "initial", rows)


def write_column(item: NestedField, rows: int) -> pa.Array:
    """Return a field's write default, or NULL, as a column.

    Raises:
        CorruptFileError: the default is not a value of the field's type.
    """
    return _column(item, item.write_default, "write", rows)


def _column(item: NestedField, value: Any, which: str, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, arrow_type(item.field_type))
    return repeat(_one(item, value, which), rows)


def _one(item: NestedField, value: Any, which: str) -> pa.Array:
    if isinstance(item.field_type, StructType):
        return _struct(item.field_type, which)
    # Arrow does not convert a UUID to 16 bytes.
    plain = value.bytes if isinstance(value, UUID) else value
    try:
        return pa.array([plain], arrow_type(item.field_type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CorruptFileError(
            f"the {which} default of column {item.name} is not a value of {item.field_type}"
        ) from error


def _struct(kind: StructType, which: str) -> pa.Array:
    """Return a struct of its fields' defaults, which is the only default of a struct other than NULL."""
    parts = [
        _column(part, part.initial_default if which == "initial" else part.write_default, which, 1)
        for part in kind.fields
    ]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind)))


def repeat(value: pa.Array, rows: int) -> pa.Array:
    """Repeat the only value of an array ``rows`` times."""
    return value.take(pa.array([0] * rows, pa.int32()))


def json_defaults(fields: Sequence[NestedField]) -> dict[int, Any]:
    """Return the write defaults of fields at every level by id, as values of JSON lines.

    Raises:
        CorruptFileError: a default is not a value of its field's type.
    """
    return {item.field_id: _json(item) for item in defaulted_fields(fields)}


def _json(item: NestedField) -> Any:
    return json.loads(json_text(item), parse_float=Decimal)


def json_text(item: NestedField) -> str:
    """Return the write default of a field, which must not be NULL, as JSON.

    Raises:
        CorruptFileError: it is not a value of the field's type.
    """
    text: str = json_values(_one(item, item.write_default, "write"), item.field_type)[0].as_py()
    return text


def defaulted_fields(fields: Sequence[NestedField]) -> Iterator[NestedField]:
    """Yield the fields that have a write default, at every level."""
    for item in fields:
        if item.write_default is not None:
            yield item
        yield from defaulted_fields(parts_of(item.field_type))


def filled_columns(
    fields: Sequence[NestedField], found: pa.Schema | pa.StructType, prefix: str = ""
) -> Iterator[tuple[str, NestedField]]:
    """Yield the fields, with full names, that a source does not have and that are filled with a write default.

    Args:
        fields: the fields of the table.
        found: the columns of the source.
        prefix: the name of the struct with the fields, followed by a dot.
    """
    types = {item.name: item.type for item in found}
    for item in fields:
        kind = types.get(item.name)
        if kind is not None:
            yield from _filled_parts(item.field_type, kind, f"{prefix}{item.name}.")
        elif item.write_default is not None:
            yield f"{prefix}{item.name}", item


def _filled_parts(
    kind: IcebergType, found: pa.DataType, prefix: str
) -> Iterator[tuple[str, NestedField]]:
    if isinstance(kind, StructType) and pa.types.is_struct(found):
        yield from filled_columns(kind.fields, found, prefix)
    elif isinstance(kind, ListType) and is_list(found):
        yield from _filled_parts(kind.element_type, found.value_type, f"{prefix}element.")
    elif isinstance(kind, MapType) and pa.types.is_map(found):
        yield from _filled_parts(kind.value_type, found.item_type, f"{prefix}value.")


def without_write_defaults(schema: Schema, ids: Collection[int]) -> Schema:
    """Return a schema without the write defaults of the fields with the given ids.

    A default in a key column would give rows with different keys the same key.
    """
    chosen = frozenset(ids)
    if not any(item.field_id in chosen for item in defaulted_fields(schema.fields)):
        return schema
    return Schema(
        *(_stripped(item, chosen) for item in schema.fields),
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def _stripped(item: NestedField, ids: frozenset[int]) -> NestedField:
    changed: dict[str, Any] = {"write_default": None} if item.field_id in ids else {}
    # A key column is never inside a list or a map.
    if isinstance(item.field_type, StructType):
        parts = [_stripped(part, ids) for part in item.field_type.fields]
        changed["field_type"] = StructType(*parts)
    return item.model_copy(update=changed)
