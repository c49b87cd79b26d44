"""The schema that a follower reads rows with."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lake.core.base.choices import SchemaMode
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.scan.plan import bound
from lake.core.spec.expressions.filters import filter_columns
from lake.core.spec.types.arrow_schema import project_schema
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.catalog import Table


def schema_of(table: Table, options: FollowOptions, pinned: Schema | None) -> Schema:
    """Return the schema for the next discovery: the table's, or the pinned one.

    A pinned column that the table has dropped is optional: newer files do not have it.

    Raises:
        BadInputError: a column that is read was promoted to a type whose values the pinned type cannot hold.
    """
    if options.schema is SchemaMode.FOLLOW or pinned is None:
        return table.schema
    now = {item.field_id: item.field_type for item in _leaves(table.schema)}
    read = _columns_read(pinned, options)
    for item in _leaves(pinned):
        current = now.get(item.field_id)
        if current is not None and current != item.field_type and item.field_id in read:
            raise BadInputError(
                f"column {item.name} is now {type_text(current)}, and the pinned schema has "
                f"{type_text(item.field_type)}",
                hint=f"start with a new {Option.STATE}, or use {Option.SCHEMA} follow",
            )
    dropped = {item.field_id for item in pinned.fields} - {
        item.field_id for item in table.schema.fields
    }
    return Schema(
        *(
            item.model_copy(update={"required": False}) if item.field_id in dropped else item
            for item in pinned.fields
        ),
        schema_id=pinned.schema_id,
    )


def _columns_read(schema: Schema, options: FollowOptions) -> set[int]:
    """Return the ids of the columns that rows, the filter and the key need."""
    condition, projection = bound(schema, options.scan)
    found = set(projection.field_ids)
    if condition is not None:
        found |= filter_columns(condition)
    if options.key:
        names, matched = options.key, not options.scan.ignore_case
        found |= set(project_schema(schema, names, case_sensitive=matched).field_ids)
    return found


def _leaves(schema: Schema) -> Iterable[NestedField]:
    """Return the columns of primitive types, at all levels."""
    return [
        item
        for number in schema.field_ids
        if (item := schema.find_field(number)).field_type.is_primitive
    ]
