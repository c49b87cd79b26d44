"""Edits of a table's schema: add, rename, drop and widen columns; fields keep their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from lake.core.base.errors import InvalidRequestError, RefusedError, unknown_column
from lake.core.base.options import Option
from lake.core.data.schemas.evolution import (
    fresh_fields,
    refuse_taken_names,
    refuse_typed_partitions,
)
from lake.core.data.schemas.new_tables import names_once, refuse_reserved
from lake.core.spec.types.arrow_schema import list_of, map_of, parts_of
from lake.core.spec.types.type_syntax import parse_columns, parse_type
from lake.core.spec.types.type_text import type_text

_TOP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEdits:
    """What to change in a schema; columns are named as in the schema before the change.

    Args:
        add: new columns such as ``name string``; ``place.zip string`` adds a field to the struct ``place``.
        rename: the new last part of the name of each column.
        drop: the columns to drop.
        widen: the new type of each column, as text.
    """

    add: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    widen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """Edits by field id; new fields by the id of their parent."""

    added: Mapping[int, Sequence[NestedField]]
    names: Mapping[int, str]
    dropped: frozenset[int]
    types: Mapping[int, IcebergType]


def edited(metadata: TableMetadata, edits: SchemaEdits) -> Schema:
    """Return the schema after the edits; the current one if nothing changes.

    Raises:
        InvalidRequestError: two edits contradict each other, or a new column cannot be parsed.
        NotFoundError: a column does not exist.
        RefusedError: readers of the table could not read it after the change.
    """
    schema = metadata.schema()
    resolved = _resolved(metadata, edits)
    fields = _rebuilt(schema.fields, resolved, _TOP)
    if fields == schema.fields:
        return schema
    next_id = max(item.schema_id for item in metadata.schemas) + 1
    known = frozenset(schema.field_ids)
    refuse_reserved(
        item.name
        for item in fields
        if item.field_id not in known or item.field_id in resolved.names
    )
    with names_once():
        changed = Schema(
            *fields, schema_id=next_id, identifier_field_ids=schema.identifier_field_ids
        )
        refuse_taken_names(metadata, schema, changed)
        refuse_typed_partitions(metadata, changed)
    return changed


def renamed_columns(before: Schema, after: Schema) -> dict[str, str | None]:
    """Return the new full name of each column that has another one; None if it was dropped."""
    now = {one: str(after.find_column_name(one)) for one in after.field_ids}
    return {
        str(before.find_column_name(one)): now.get(one)
        for one in before.field_ids
        if before.find_column_name(one) != now.get(one)
    }


def _resolved(metadata: TableMetadata, edits: SchemaEdits) -> _Resolved:
    schema = metadata.schema()
    dropped = frozenset(_id_of(schema, name) for name in edits.drop)
    names = {_id_of(schema, old): _checked_name(new) for old, new in edits.rename.items()}
    added = _added(metadata, edits.add)
    types = _types(metadata, edits.widen, [item for items in added.values() for item in items])
    changed = names.keys() | types.keys() | added.keys()
    if twice := changed & {one for column in dropped for one in _ids(schema.find_field(column))}:
        name = schema.find_column_name(min(twice))
        raise InvalidRequestError(f"column {name} cannot be both dropped and changed")
    _refuse_in_keys(schema, dropped | changed)
    for column in dropped:
        _refuse_drop(metadata, column)
    for column in names:
        _refuse_part_of_container(schema, column, "renamed")
    for column, kind in types.items():
        _refuse_narrowing(metadata, column, kind)
    return _Resolved(added, names, dropped, types)


def _id_of(schema: Schema, name: str) -> int:
    try:
        return schema.find_field(name).field_id
    except ValueError as error:
        raise unknown_column(name, [item.name for item in schema.fields]) from error


def _types(
    metadata: TableMetadata, texts: Mapping[str, str], added: Sequence[NestedField]
) -> dict[int, IcebergType]:
    """Return new types by the ids of their columns; the fields inside have fresh ids, behind those of new columns."""
    types = {_id_of(metadata.schema(), name): parse_type(text) for name, text in texts.items()}
    last = max([metadata.last_column_id, *(one for item in added for one in _ids(item))])
    nested = [NestedField(one, str(one), kind) for one, kind in types.items() if parts_of(kind)]
    fresh = fresh_fields(last, nested)
    return types | {int(item.name): item.field_type for item in fresh}


def _checked_name(name: str) -> str:
    if not name or not name.isprintable():
        raise InvalidRequestError(f"{name!r} is not a name of a column")
    return name


def _refuse_part_of_container(schema: Schema, column: int, verb: str) -> None:
    """Refuse to rename or drop the element of a list, or the key or value of a map."""
    for one in schema.field_ids:
        kind = schema.find_field(one).field_type
        parts: tuple[int, ...] = ()
        if isinstance(kind, ListType):
            parts = (kind.element_id,)
        elif isinstance(kind, MapType):
            parts = (kind.key_id, kind.value_id)
        if column in parts:
            raise RefusedError(
                f"{schema.find_column_name(column)} is part of a {kind}: it cannot be {verb}"
            )


def _refuse_in_keys(schema: Schema, columns: frozenset[int]) -> None:
    """Refuse changes of the keys of maps: they would change which keys are equal."""
    for one in schema.field_ids:
        kind = schema.find_field(one).field_type
        if isinstance(kind, MapType) and (found := columns.intersection(_ids(kind.key_field))):
            raise RefusedError(
                f"{schema.find_column_name(min(found))} is part of a key of a map: it cannot be changed"
            )


def _refuse_drop(metadata: TableMetadata, column: int) -> None:
    """Refuse to drop a column that the partitioning, the sort order or the identifier fields need.

    Old partition specs count too: engines bind each spec of the metadata to the current schema.

    Raises:
        RefusedError: the column is needed.
    """
    schema = metadata.schema()
    name = schema.find_column_name(column)
    _refuse_part_of_container(schema, column, "dropped")
    below = set(_ids(schema.find_field(column)))
    specs = {item.source_id for spec in metadata.partition_specs for item in spec.fields}
    if below & specs:
        raise RefusedError(
            f"column {name} cannot be dropped: a partition spec of the table uses it",
            hint="change the partitioning, rewrite the files of the old partition spec, and remove the spec with "
            f"{Option.CLEAN_METADATA}",
        )
    if below & {item.source_id for item in metadata.sort_order().fields}:
        raise RefusedError(
            f"column {name} cannot be dropped: the sort order of the table uses it",
            hint=f"change the sort order first, with {Option.SORT_BY}",
        )
    if below & set(schema.identifier_field_ids):
        raise RefusedError(f"column {name} cannot be dropped: it is an identifier field")


def _ids(item: NestedField) -> Iterator[int]:
    yield from Schema(item).field_ids


def _refuse_narrowing(metadata: TableMetadata, column: int, kind: IcebergType) -> None:
    """Refuse changes of types that Iceberg does not promote.

    Source: https://iceberg.apache.org/spec/#schema-evolution.

    Raises:
        RefusedError: values of the old type cannot be read as values of the new type.
    """
    schema = metadata.schema()
    old = schema.find_type(column)
    wider = (
        isinstance(old, UnknownType)
        or (isinstance(old, IntegerType) and isinstance(kind, LongType))
        or (isinstance(old, FloatType) and isinstance(kind, DoubleType))
    )
    if isinstance(old, DecimalType) and isinstance(kind, DecimalType):
        wider = old.scale == kind.scale and old.precision <= kind.precision
    if old == kind or wider:
        return
    raise RefusedError(
        f"column {schema.find_column_name(column)} cannot be changed from {type_text(old)} to {type_text(kind)}",
        hint="Iceberg widens int to long, float to double, a decimal to more digits with the same scale, and unknown "
        "to any type",
    )


def _added(metadata: TableMetadata, texts: Sequence[str]) -> dict[int, list[NestedField]]:
    """Return new fields with fresh ids by the id of their parent, -1 for the table."""
    schema = metadata.schema()
    parsed = parse_columns(list(texts)).fields
    by_parent: dict[int, list[NestedField]] = {}
    fresh = fresh_fields(metadata.last_column_id, [_bare(item) for item in parsed])
    for given, item in zip(parsed, fresh, strict=True):
        if item.required:
            raise RefusedError(
                f"column {given.name} cannot be added as not null: the rows of the table have no value for it",
                hint="add it without `not null`",
            )
        parent, _, _name = given.name.rpartition(".")
        by_parent.setdefault(_parent_id(schema, parent), []).append(item)
    return by_parent


def _bare(item: NestedField) -> NestedField:
    return item.model_copy(update={"name": _checked_name(item.name.rpartition(".")[2])})


def _parent_id(schema: Schema, name: str) -> int:
    if not name:
        return _TOP
    found = _id_of(schema, name)
    kind = schema.find_type(found)
    if not isinstance(kind, StructType):
        raise InvalidRequestError(
            f"column {name} is of type {type_text(kind)}: only a struct can get another field",
            hint="the element of a list is named `element`, the value of a map `value`",
        )
    return found


def _rebuilt(
    fields: Sequence[NestedField], edits: _Resolved, parent: int
) -> tuple[NestedField, ...]:
    kept = [_changed(item, edits) for item in fields if item.field_id not in edits.dropped]
    kept += edits.added.get(parent, [])
    if not kept:
        raise RefusedError("a table and a struct need at least one column")
    names = [item.name for item in kept]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequestError(f"two columns have the name {name}")
    return tuple(kept)


def _changed(item: NestedField, edits: _Resolved) -> NestedField:
    changes: dict[str, object] = {}
    kind = _type(item.field_type, item.field_id, edits)
    if kind is not item.field_type:
        changes["field_type"] = kind
    if isinstance(item.field_type, FloatType) and isinstance(kind, DoubleType):
        # Rows that have a default keep its value, which is that of a float of 32 bits.
        defaults = {"initial_default": item.initial_default, "write_default": item.write_default}
        changes |= {key: pa.scalar(value, pa.float32()).as_py() for key, value in defaults.items()}
    name = edits.names.get(item.field_id, item.name)
    if name != item.name:
        changes["name"] = name
    return item.model_copy(update=changes) if changes else item


def _type(kind: IcebergType, field_id: int, edits: _Resolved) -> IcebergType:
    """Return the type of a field after the edits; the same object if nothing changes."""
    if field_id in edits.types:
        return edits.types[field_id]
    if isinstance(kind, StructType):
        fields = _rebuilt(kind.fields, edits, field_id)
        return kind if fields == kind.fields else StructType(*fields)
    if isinstance(kind, ListType):
        element = _type(kind.element_type, kind.element_id, edits)
        return kind if element is kind.element_type else list_of(kind, element)
    if isinstance(kind, MapType):
        value = _type(kind.value_type, kind.value_id, edits)
        return kind if value is kind.value_type else map_of(kind, kind.key_type, value)
    return kind
