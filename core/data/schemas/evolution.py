"""Schema evolution: the schema with a source's new columns, and the updates that give it to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    parse_mapping_from_json,
    update_mapping,
)
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from lake.core.base.arrow import is_list
from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.base.options import Option
from lake.core.data.schemas.new_tables import NewColumns, names_once
from lake.core.spec.properties.table_properties import NAME_MAPPING
from lake.core.spec.types.arrow_schema import find_id, list_of, map_of, parts_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table

# The parent id of top-level columns in `update_mapping`.
_TOP = -1
_PLAIN = NewColumns()


def schema_changes(
    table: Table, schema: Schema
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the requirements and updates that set a table's schema, if the current schema is still the same.

    New columns and new names are also added to the table's name mapping, as Iceberg Java does. Otherwise such a
    column of a file without field ids would not be read.

    Raises:
        CorruptFileError: the table's name mapping cannot be read.
    """
    metadata = table.metadata
    requirements = (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )
    is_known = any(item.schema_id == schema.schema_id for item in metadata.schemas)
    updates = (
        *(() if is_known else (AddSchemaUpdate(schema_=schema),)),
        SetCurrentSchemaUpdate(schema_id=schema.schema_id),
        *_mapping_changes(table, schema),
    )
    return requirements, updates


def _mapping_changes(table: Table, schema: Schema) -> Iterator[TableUpdate]:
    mapping = _mapping_of(table.metadata)
    if mapping is not None:
        changed = _mapped(mapping, table.schema, schema).model_dump_json()
        yield SetPropertiesUpdate(updates={NAME_MAPPING.name: changed})


def _mapping_of(metadata: TableMetadata) -> NameMapping | None:
    text = NAME_MAPPING.of(metadata.properties)
    if text is None:
        return None
    try:
        return parse_mapping_from_json(text)
    except ValueError as error:
        raise CorruptFileError(
            "the table's name mapping cannot be read",
            hint=f"correct its table property {NAME_MAPPING.name}",
        ) from error


def _mapped(mapping: NameMapping, before: Schema, after: Schema) -> NameMapping:
    """Return a name mapping with the new columns and the new names."""
    old = frozenset(before.field_ids)
    renamed = {
        field_id: after.find_field(field_id)
        for field_id in old.intersection(after.field_ids)
        if after.find_field(field_id).name != before.find_field(field_id).name
    }
    added = dict(_additions(after.fields, old, _TOP))
    # PyIceberg changes the lists of names in place.
    return update_mapping(mapping.model_copy(deep=True), renamed, added)


def _names_in(
    fields: Sequence[MappedField], parent: int = _TOP
) -> Iterator[tuple[tuple[int, str], int]]:
    """Yield the names in a mapping, each with the id of the struct that contains it, and the field's own id."""
    for field in fields:
        if field.field_id is not None:
            yield from (((parent, name), field.field_id) for name in field.names)
            yield from _names_in(field.fields, field.field_id)


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
    """Return the schema with the source's new columns and nested fields appended, optional, with fresh ids.

    A column of type unknown gets the source's type.

    Raises:
        BadInputError: a new column's type has no Iceberg type, or its name exists already.
    """
    fresh = _fresh_ids(last_column_id)
    fields = _with_new_fields(schema.fields, list(source), _New(fresh, made))
    if fields == schema.fields:
        return schema
    identifiers = schema.identifier_field_ids
    with names_once():
        return Schema(*fields, schema_id=next_schema_id, identifier_field_ids=identifiers)


def refuse_taken_names(metadata: TableMetadata, before: Schema, after: Schema) -> None:
    """Refuse a new name of a column that a partition field of another column has, or another column in files.

    Engines bind all specs to the current schema, and do not load the table if this fails. A field whose column was
    dropped does not count. Source: Iceberg Java's PartitionSpec.Builder. Data files without field ids have the
    values of a column under the names that the table's name mapping gives to it.

    Raises:
        CorruptFileError: the table's name mapping cannot be read.
        RefusedError: there is such a name.
    """
    mapping = _mapping_of(metadata)
    if mapping is not None:
        known = dict(_names_in(mapping.root))
        for place, number in _names_in(_mapped(mapping, before, after).root):
            if known.get(place, number) != number:  # check: name-in-files
                raise RefusedError(
                    f"a column cannot have the name {place[1]}: in files without field ids, another column has it "
                    f"(id {known[place]} in the table's name mapping), whose values would move to this one",
                    hint="choose another name; or rewrite all files, so that they have ids, with "
                    f"{Option.REWRITE_ALL}, and then remove the property {NAME_MAPPING.name}",
                )
    for spec in metadata.partition_specs:
        for item in spec.fields:
            found = find_id(after, item.name)
            is_own = isinstance(item.transform, IdentityTransform | VoidTransform)
            if found is None or found == find_id(before, item.name):
                continue
            if after.find_column_name(item.source_id) is None:
                continue
            if not (is_own and found == item.source_id):
                raise RefusedError(
                    f"a column cannot have the name {item.name}: a partition field of the table has it",
                    hint="choose another name",
                )


def refuse_typed_partitions(metadata: TableMetadata, schema: Schema) -> None:
    """Refuse to give a type to a column of the type unknown by whose values the table is partitioned."""
    before = metadata.schema()
    for part in metadata.spec().fields:
        # Its column may have been dropped.
        if isinstance(part.transform, VoidTransform):
            continue
        kind = before.find_type(part.source_id)
        if isinstance(kind, UnknownType) and kind != schema.find_type(part.source_id):
            name = schema.find_column_name(part.source_id)
            raise RefusedError(
                f"lake cannot give column {name} a type: the table is partitioned by its values",
                hint="remove the column from the partition spec first",
            )


def fresh_fields(last_column_id: int, fields: Sequence[NestedField]) -> tuple[NestedField, ...]:
    """Return new fields of a table with ids that follow the last one."""
    if not fields:
        return ()
    fresh = _fresh_ids(last_column_id)
    return tuple(assign_fresh_schema_ids(Schema(item), fresh).fields[0] for item in fields)


def _fresh_ids(last: int) -> Callable[[], int]:
    def fresh() -> int:
        nonlocal last
        last += 1
        return last

    return fresh


@dataclass(frozen=True, slots=True)
class _New:
    """The settings for new fields."""

    fresh: Callable[[], int]
    made: NewColumns

    def fields(self, found: Sequence[pa.Field]) -> tuple[NestedField, ...]:
        """Return a source's fields as new fields of the table."""
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
    type_ = field.field_type
    if item is None:
        return type_
    arrow_type = item.type
    if isinstance(type_, UnknownType) and not pa.types.is_null(arrow_type):
        return new.fields([item])[0].field_type
    if isinstance(type_, StructType) and pa.types.is_struct(arrow_type):
        return StructType(*_with_new_fields(type_.fields, list(arrow_type), new))
    if isinstance(type_, ListType) and is_list(arrow_type):
        element = _with_new_parts(type_.element_field, arrow_type.value_field, new)
        return list_of(type_, element)
    if isinstance(type_, MapType) and pa.types.is_map(arrow_type):
        value = _with_new_parts(type_.value_field, arrow_type.item_field, new)
        return map_of(type_, type_.key_type, value)
    return type_


def _with_type(field: NestedField, type_: IcebergType) -> NestedField:
    return field if type_ is field.field_type else field.model_copy(update={"field_type": type_})
