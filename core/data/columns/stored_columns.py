"""The columns of a table that lake writes to data files.

Columns of the type `unknown` contain only NULLs and are not written, at any level. The same is true of columns that
lake cannot write (see `lake.core.spec.types.unsupported_columns`): they are NULL in rows that lake adds, and existing
values are never rewritten, because reading them is refused. Source:
https://iceberg.apache.org/spec/#primitive-types; columns that cannot be omitted are those that Iceberg Java's
TypeToMessageType refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType

from lake.core.base.errors import RefusedError
from lake.core.data.columns.type_promotion import convert
from lake.core.spec.types.arrow_schema import list_of, map_of
from lake.core.spec.types.type_text import type_text
from lake.core.spec.types.unsupported_columns import UNSUPPORTED, unsupported

_LEFT_OUT = (UnknownType, *UNSUPPORTED)


def stored_schema(schema: Schema) -> Schema:
    """Return a table's schema without the columns and fields that are not written to data files.

    Raises:
        RefusedError: a list, map or struct has no other fields, so its values cannot be written; or a column that
            lake cannot write is required.
    """
    fields = _stored_fields(schema.fields, "")
    if not fields:
        raise RefusedError(
            "the table has no column whose values lake can write",
            hint="add a column with a type other than unknown",
        )
    return schema if fields == schema.fields else Schema(*fields, schema_id=schema.schema_id)


def _stored_fields(fields: Sequence[NestedField], prefix: str) -> tuple[NestedField, ...]:
    stored = []
    for item in fields:
        kind, name = item.field_type, prefix + item.name
        if isinstance(kind, UNSUPPORTED) and item.required:
            raise unsupported(name, kind)
        if not isinstance(kind, _LEFT_OUT):
            stored.append(_stored_field(item, name))
    return tuple(stored)


def _stored_field(item: NestedField, name: str) -> NestedField:
    kind = _stored_type(item.field_type, name)
    return item if kind == item.field_type else item.model_copy(update={"field_type": kind})


def _stored_type(kind: IcebergType, name: str) -> IcebergType:
    if isinstance(kind, StructType):
        fields = _stored_fields(kind.fields, f"{name}.")
        if not fields:
            raise _not_stored(name, kind)
        return StructType(*fields)
    if isinstance(kind, ListType):
        element = _stored_part(kind.element_type, f"{name}.element")
        return list_of(kind, element)
    if isinstance(kind, MapType):
        key = _stored_part(kind.key_type, f"{name}.key")
        value = _stored_part(kind.value_type, f"{name}.value")
        return map_of(kind, key, value)
    return kind


def _stored_part(kind: IcebergType, name: str) -> IcebergType:
    if isinstance(kind, UNSUPPORTED):
        raise unsupported(name, kind)
    if isinstance(kind, UnknownType):
        raise _not_stored(name, kind)
    return _stored_type(kind, name)


def _not_stored(name: str, kind: IcebergType) -> RefusedError:
    return RefusedError(
        f"column {name} of type {type_text(kind)} cannot be written to data files",
        hint="drop the column, or change the types of its fields from unknown",
    )


def without_unstored(table: pa.Table, schema: Schema) -> pa.Table:
    """Return rows with only the columns of a stored schema.

    Args:
        table: rows with the columns of the table's schema.
        schema: the table's schema after `stored_schema`.
    """
    columns = []
    for item in schema.fields:
        column = table.column(item.name)
        if _has_nulls_only(column.type):
            parts = [convert(chunk, item, "the rows to write") for chunk in column.chunks]
            column = pa.chunked_array(parts, None if parts else column.type)
        columns.append(column)
    names = [item.name for item in schema.fields]
    fields = [
        table.schema.field(name).with_type(column.type)
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields))


def _has_nulls_only(kind: pa.DataType) -> bool:
    """Whether a type, or a part of it, is Arrow's type of NULLs only."""
    parts = (kind.field(index).type for index in range(kind.num_fields))
    return pa.types.is_null(kind) or any(_has_nulls_only(part) for part in parts)
