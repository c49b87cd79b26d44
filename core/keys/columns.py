"""Columns that equality deletes compare: found by id in any schema that the table ever had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from lake.core.errors import CorruptFileError
from lake.core.expressions.filters import field_path


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key: a top-level column, or a part of structs.

    Args:
        path: the fields from the top-level column to the compared one.
    """

    path: tuple[NestedField, ...]

    @property
    def top(self) -> NestedField:
        """The top-level column."""
        return self.path[0]

    @property
    def leaf(self) -> NestedField:
        """What is compared."""
        return self.path[-1]

    def of(self, column: pa.Array) -> pa.Array:
        """Return the compared part of the top-level column's values; a NULL struct's parts are NULL."""
        for item in self.path[1:]:
            column = column.flatten()[column.type.get_field_index(item.name)]
        return column


def key_schema(ids: Iterable[int], schemas: Sequence[Schema]) -> Schema:
    """Return the fields of keys as optional ones, named by their ids because old names may have been reused.

    Args:
        ids: the compared columns.
        schemas: the table's; of those that have a column, the first tells its type.

    Raises:
        CorruptFileError: no schema has a column.
    """
    tops: dict[int, NestedField] = {}
    for column in sorted(set(ids)):
        path = _found(column, schemas)
        field = _chain(path)
        known = tops.get(field.field_id)
        tops[field.field_id] = field if known is None else _merged(known, field)
    return Schema(*tops.values())


def key_columns(types: Schema | None, ids: Sequence[int]) -> list[KeyColumn]:
    """Return the columns of a key, in the order of their ids given.

    Raises:
        CorruptFileError: the fields of `key_schema` lack one.
    """
    return [KeyColumn(tuple(_found(column, [types] if types else []))) for column in ids]


def _found(column: int, schemas: Sequence[Schema]) -> list[NestedField]:
    for schema in schemas:
        path = field_path(schema, column)
        if path is not None:
            return list(path)
    raise CorruptFileError(f"deletes compare the column of id {column}, which the table never had")


def _chain(path: Sequence[NestedField]) -> NestedField:
    """Return a top-level column with only the parts that a path names."""
    first, *rest = path
    kind = StructType(_chain(rest)) if rest else first.field_type
    return NestedField(
        first.field_id,
        str(first.field_id),
        kind,
        required=False,
        initial_default=None if rest else first.initial_default,
    )


def _merged(one: NestedField, other: NestedField) -> NestedField:
    if not isinstance(one.field_type, StructType) or not isinstance(other.field_type, StructType):
        return one
    parts = {item.field_id: item for item in one.field_type.fields}
    for item in other.field_type.fields:
        known = parts.get(item.field_id)
        parts[item.field_id] = item if known is None else _merged(known, item)
    kind = StructType(*parts.values())
    return NestedField(one.field_id, one.name, kind, required=False)
