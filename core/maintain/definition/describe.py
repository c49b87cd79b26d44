"""Definitions of tables as JSON-ready values."""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema

from lake.core.spec.types.type_text import type_text


def column_rows(schema: Schema) -> list[dict[str, Any]]:
    """Return the top-level columns of a schema."""
    return [
        {
            "name": item.name,
            "type": type_text(item.field_type),
            "required": item.required,
            "key": item.field_id in schema.identifier_field_ids,
        }
        for item in schema.fields
    ]
