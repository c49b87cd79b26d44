"""New columns: the schema that has them, and the changes that give it to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from lake.core.errors import CorruptFileError
from lake.core.ingest.table_creation import NewColumns, is_list, names_once
from lake.core.properties.table_properties import NAME_MAPPING
from lake.core.types.arrow_schema import list_of, map_of, parts_of

if TYPE_CHECKING:
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lake.core.catalogs.catalog import Table

# Where the name mapping takes new columns that lie in no other.
_TOP = -1
_PLAIN = NewColumns()


def schema_changes(
    table: Table, schema: Schema
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return what gives a table the schema, on the very one that was seen.

    New columns also join the table's name mapping, as Iceberg Java does it: a file without field ids that
    has such a column would be read without it.

    Raises:
        CorruptFileError: the table's name mapping cannot be read.
    """
    from pyiceberg.table.update import (  # noqa: PLC0415
        AddSchemaUpdate,
        AssertCurrentSchemaId,
        AssertLastAssignedFieldId,
        SetCurrentSchemaUpdate,
    )

    metadata = table.metadata
    requirements = (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )
    updates = (
        AddSchemaUpdate(schema_=schema),
        SetCurrentSchemaUpdate(schema_id=schema.schema_id),
        *_mapping_changes(table, schema),
    )
    return requirements, updates


def _mapping_changes(table: Table, schema: Schema) -> Iterator[TableUpdate]:
    from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping  # noqa: PLC0415
    from pyiceberg.table.update import SetPropertiesUpdate  # noqa: PLC0415

    text = NAME_MAPPING.of(table.properties)
    if text is None:
        return
    try:
        mapping = parse_mapping_from_json(text)
    except ValueError as error:
        raise CorruptFileError(
            f"the name mapping of {table.identifier} cannot be read",
            hint=f"mend its {NAME_MAPPING.name}",
        ) from error
    old = frozenset(table.schema.field_ids)
    added = dict(_additions(schema.fields, old, _TOP))
    changed = update_mapping(mapping, {}, added).model_dump_json()
    yield SetPropertiesUpdate(updates={NAME_MAPPING.name: changed})


def _additions(
    fields: Sequence[NestedField], old: frozenset[int], parent: int
) -> Iterator[tuple[int, list[NestedField]]]:
    """Yield the new fields of each struct that is not new itself, with its field id."""
    new = [field for field in fields if field.field_id not in old]
    if new:
        yield parent, new
    for field in fields:
        if field.field_id in old:
            yield from _additions(parts_of(field.field_type), old, field.field_id)


def evolved(
    schema: Schema,
    last_column_id: int,
    next_schema_id: int,
    source: pa.Schema,
    made: NewColumns = _PLAIN,
) -> Schema:
    """Return the schema with the source's new columns and nested fields behind, optional, with fresh ids.

    A column of the type unknown gets the source's type.

    Raises:
        BadInputError: a new column's type has no Iceberg type, or its name is another's.
    """
    fresh = _fresh_ids(last_column_id)
    fields = _with_new_fields(schema.fields, list(source), _New(fresh, made))
    if fields == schema.fields:
        return schema
    identifiers = schema.identifier_field_ids
    with names_once():
        return Schema(*fields, schema_id=next_schema_id, identifier_field_ids=identifiers)


def _fresh_ids(last: int) -> Callable[[], int]:
    def fresh() -> int:
        nonlocal last
        last += 1
        return last

    return fresh


@dataclass(frozen=True, slots=True)
class _New:
    """How new fields are made."""

    fresh: Callable[[], int]
    made: NewColumns

    def fields(self, found: Sequence[pa.Field]) -> tuple[NestedField, ...]:
        """Return a source's fields as new ones of the table."""
        schema = self.made.schema_of(pa.schema(found)) if found else Schema()
        return assign_fresh_schema_ids(schema, self.fresh).fields


def _with_new_fields(
    fields: tuple[NestedField, ...], found: Sequence[pa.Field], new: _New
) -> tuple[NestedField, ...]:
    types = {item.name: item for item in found}
    kept = tuple(
        _with_type(field, _with_new_parts(field, types.pop(field.name, None), new))
        for field in fields
    )
    return kept + new.fields(list(types.values()))


def _with_new_parts(field: NestedField, item: pa.Field | None, new: _New) -> IcebergType:
    kind = field.field_type
    if item is None:
        return kind
    found = item.type
    if isinstance(kind, UnknownType) and not pa.types.is_null(found):
        return new.fields([item])[0].field_type
    if isinstance(kind, StructType) and pa.types.is_struct(found):
        return StructType(*_with_new_fields(kind.fields, list(found), new))
    if isinstance(kind, ListType) and is_list(found):
        element = _with_new_parts(kind.element_field, found.value_field, new)
        return list_of(kind, element)
    if isinstance(kind, MapType) and pa.types.is_map(found):
        value = _with_new_parts(kind.value_field, found.item_field, new)
        return map_of(kind, kind.key_type, value)
    return kind


def _with_type(field: NestedField, kind: IcebergType) -> NestedField:
    return field if kind is field.field_type else field.model_copy(update={"field_type": kind})
