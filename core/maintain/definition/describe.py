"""Definitions of tables as facts."""

from __future__ import annotations

from pyiceberg.schema import Schema

from lake.core.maintain.definition.facts import ColumnFacts
from lake.core.spec.types.type_text import type_text


def column_facts(schema: Schema) -> list[ColumnFacts]:
    """Return the top-level columns of a schema."""
    return [
        ColumnFacts(
            name=item.name,
            type=type_text(item.field_type),
            required=item.required,
            key=item.field_id in schema.identifier_field_ids,
        )
        for item in schema.fields
    ]
