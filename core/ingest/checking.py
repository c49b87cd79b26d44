"""Whether a source's columns fit a table, told in full before a byte is written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import NestedField

from lake.core.errors import BadInputError
from lake.core.ingest.creation import schema_of
from lake.core.rows.convert import promotable
from lake.core.rows.texts import parses


def check_columns(
    schema: Schema, source: pa.Schema, where: str, *, text: bool, evolve: bool
) -> list[str]:
    """Return what does not fit, one line a problem; empty if all does.

    Args:
        schema: the table's.
        source: the file's columns.
        where: the file's name.
        text: the file has no types of its own: values are parsed as the table's types.
        evolve: unknown columns will be added.
    """
    problems = []
    columns = {item.name: item.type for item in source}
    if len(columns) != len(source):
        problems.append(f"{where} has two columns of one name")
    folded = {field.name.lower(): field.name for field in schema.fields}
    for field in schema.fields:
        found = columns.pop(field.name, None)
        if found is None:
            if field.required:
                problems.append(f"{where} lacks the required column {field.name} ({field.field_type})")
        elif not _fits(found, field, text=text):
            problems.append(
                f"column {field.name} is {found} in {where} and {field.field_type} in the table"
            )
    for name, kind in columns.items():
        if not evolve:
            like = folded.get(name.lower())
            meant = f"; did you mean {like}?" if like else ""
            problems.append(f"{where} has column {name} ({kind}), which the table lacks{meant}")
    return problems


def _fits(found: pa.DataType, field: NestedField, *, text: bool) -> bool:
    if text and parses(field.field_type):
        return bool(pa.types.is_string(found) or pa.types.is_null(found) or _parsed(found))
    return promotable(found, field.field_type, by_name=True)


def _parsed(found: pa.DataType) -> bool:
    # A reader that infers may have parsed what the table's type parses from text again.
    return bool(pa.types.is_timestamp(found) or pa.types.is_integer(found))


def raise_problems(problems: Sequence[str]) -> None:
    """Refuse a source that does not fit.

    Raises:
        BadInputError: there are problems; the message holds all of them.
    """
    if problems:
        shown = "; ".join(problems[:20])
        raise BadInputError(
            f"the source does not fit the table: {shown}",
            hint="--evolve adds new columns; nothing was written",
        )


def evolved(schema: Schema, last_column_id: int, next_schema_id: int, source: pa.Schema) -> Schema:
    """Return the schema with the source's new columns behind, optional, with fresh ids."""
    new = [item for item in source if item.name not in schema.column_names]
    if not new:
        return schema
    next_id = last_column_id

    def fresh() -> int:
        nonlocal next_id
        next_id += 1
        return next_id

    added = assign_fresh_schema_ids(schema_of(pa.schema(new)), fresh)
    return Schema(
        *schema.fields,
        *added.fields,
        schema_id=next_schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )
