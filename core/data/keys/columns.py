"""The columns that equality deletes compare, found by field id in all schemas of the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from lake.core.base.arrow import nested_field
from lake.core.base.errors import CorruptFileError
from lake.core.spec.types.arrow_schema import field_path


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key: a top-level column, or a field inside structs."""

    path: tuple[NestedField, ...]

    @property
    def top(self) -> NestedField:
        """The top-level column."""
        return self.path[0]

    @property
    def leaf(self) -> NestedField:
        """The compared field."""
        return self.path[-1]

    def of(self, column: pa.Array) -> pa.Array:
        """Return the compared field's values in a top-level column; NULL where a parent struct is NULL."""
        return nested_field(column, (item.name for item in self.path[1:]))


def key_schema(ids: Iterable[int], schemas: Sequence[Schema]) -> Schema:
    """Return the key fields as optional fields, named by their ids because old names may have been reused.

    Args:
        ids: the compared columns.
        schemas: the table's schemas; a column's type is taken from the first one that has it.

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
    """Return the columns of a key, in the order of the given ids.

    Raises:
        CorruptFileError: the fields of `key_schema` do not include one of them.
    """
    return [KeyColumn(tuple(_found(column, [types] if types else []))) for column in ids]


def _found(column: int, schemas: Sequence[Schema]) -> list[NestedField]:
    for schema in schemas:
        path = field_path(schema, column)
        if path is not None:
            return list(path)
    raise CorruptFileError(
        f"deletes compare the column with id {column}, which no schema of the table has"
    )


def _chain(path: Sequence[NestedField]) -> NestedField:
    """Return a top-level column with only the nested fields on a path."""
    first, *rest = path
    kind = StructType(_chain(rest)) if rest else first.field_type
    return NestedField(
        first.field_id,
        str(first.field_id),
        kind,
        required=False,
        initial_default=None if rest else first.initial_default,
    )


def _merged(left: NestedField, right: NestedField) -> NestedField:
    if not isinstance(left.field_type, StructType) or not isinstance(right.field_type, StructType):
        return left
    parts = {item.field_id: item for item in left.field_type.fields}
    for item in right.field_type.fields:
        known = parts.get(item.field_id)
        parts[item.field_id] = item if known is None else _merged(known, item)
    kind = StructType(*parts.values())
    return NestedField(left.field_id, left.name, kind, required=False)
