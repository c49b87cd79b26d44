"""Create an empty table: its columns as text, or those of a file or another table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.table.update import AssertCreate
from pyiceberg.types import DoubleType, FloatType, NestedField, UnknownType

from lake.core.base.errors import (
    CommitConflictError,
    InvalidRequestError,
    RefusedError,
    unknown_column,
)
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.data.schemas.new_tables import new_table, schema_like
from lake.core.data.schemas.remains import remains_in_folder
from lake.core.maintain.definition.describe import column_facts
from lake.core.maintain.definition.facts import CreationFacts
from lake.core.spec.properties.table_properties import FORMAT_VERSION
from lake.core.spec.types.transform_syntax import partition_terms, sort_terms
from lake.core.spec.types.type_syntax import parse_columns
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.session import Session

SchemaOfFile = Callable[[Session, str, Mapping[str, str]], Schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The definition of a new table.

    Args:
        columns: its columns, such as ``id long not null``.
        like: a file or a table whose columns it has; None if the columns are given.
        partition_by: its partition transforms.
        sort_by: its sort order.
        properties: its properties.
        key: the columns that identify a row; they become required.
        if_not_exists: whether an existing table is left as it is.

    Raises:
        InvalidRequestError: there are no columns, or both columns and an example.
    """

    columns: Sequence[str] = ()
    like: str | None = None
    partition_by: str | None = None
    sort_by: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] = ()
    if_not_exists: bool = False

    def __post_init__(self) -> None:
        if bool(self.columns) == (self.like is not None):
            raise InvalidRequestError(
                f"a new table needs its columns, or {Option.LIKE} with a file or a table that has them",
                hint="write columns as: 'id long not null' 'name string'",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationPlan:
    """A table to create; `table` is staged, or exists already."""

    table: Table
    exists: bool


def plan_create(
    session: Session,
    identifier: str,
    definition: TableDefinition,
    schema_of_file: SchemaOfFile,
    *,
    dry_run: bool,
) -> CreationPlan:
    """Check the definition and stage the table; nothing is written except a missing namespace.

    Args:
        session: the session of the invocation.
        identifier: the table's name.
        definition: the definition.
        schema_of_file: reads the columns of a file, for a table with the properties.
        dry_run: whether a missing namespace is not created.

    Raises:
        RefusedError: the table exists, or other engines cannot read such a table.
        InvalidRequestError: a column, a term or a property is not valid.
        NotFoundError: a column of the partitioning, the sort order or the key does not exist.
    """
    if session.catalog.exists(identifier):
        if not definition.if_not_exists:
            raise RefusedError(
                f"table {identifier} exists already",
                hint=f"{Option.IF_NOT_EXISTS} leaves an existing table as it is",
            )
        return CreationPlan(table=session.table(identifier), exists=True)
    schema = with_key(_schema(session, definition, schema_of_file), definition.key)
    made = new_table(
        schema,
        partition_by=definition.partition_by,
        sort_by=definition.sort_by,
        properties=definition.properties,
        warn=session.warn,
    )
    refuse_types(schema, int(made.properties[FORMAT_VERSION.name]))
    table = made.stage(session.catalog, identifier, make_namespace=not dry_run)
    if (remains := remains_in_folder(table)) is not None:
        session.warn(remains)
    return CreationPlan(table=table, exists=False)


def _schema(session: Session, definition: TableDefinition, schema_of_file: SchemaOfFile) -> Schema:
    if definition.like is None:
        return parse_columns(list(definition.columns))
    if "/" in definition.like or os.path.exists(definition.like):
        return schema_of_file(session, definition.like, definition.properties)
    return schema_like(session.table(definition.like).schema)


def with_key(schema: Schema, names: Sequence[str]) -> Schema:
    """Return a new table's schema with identifier fields, which are required; its own if no name is given.

    Raises:
        NotFoundError: a name is not a column.
        InvalidRequestError: the values of a column cannot identify a row.
    """
    if not names:
        return schema
    fields = {item.name: item for item in schema.fields}
    for name in names:
        if name not in fields:
            raise unknown_column(name, list(fields))
        kind = fields[name].field_type
        if not kind.is_primitive or isinstance(kind, FloatType | DoubleType):
            raise InvalidRequestError(f"column {name} ({type_text(kind)}) cannot identify a row")
    changed = [_required(item) if item.name in names else item for item in schema.fields]
    return Schema(*changed, identifier_field_ids=[fields[name].field_id for name in names])


def _required(item: NestedField) -> NestedField:
    return item.model_copy(update={"required": True})


def refuse_types(schema: Schema, format_version: int) -> None:
    """Refuse columns that a format version does not have, and those of which every row needs an unknown value.

    Raises:
        RefusedError: a column's type needs a later version, or other engines cannot load a table with the column.
    """
    for column in schema.field_ids:
        item = schema.find_field(column)
        least = item.field_type.minimum_format_version()
        if format_version < least:
            raise RefusedError(
                f"column {schema.find_column_name(column)} has the type {item.field_type}, which needs format "
                f"version {least}, not {format_version}",
                hint=f"add {Option.FORMAT_VERSION} {least}",
            )
        if item.required and isinstance(item.field_type, UnknownType):
            raise RefusedError(
                f"column {schema.find_column_name(column)} is always NULL, as its type is unknown: it cannot be "
                "not null, a key or the key of a map"
            )


def execute(session: Session, plan: CreationPlan, *, if_not_exists: bool, dry_run: bool) -> Outcome:
    """Create the table in one commit.

    Raises:
        CommitConflictError: another process created it meanwhile; nothing was changed.
        CommitUnknownError: the table may have been created.
    """
    table = plan.table
    if plan.exists:
        return _outcome(table, Status.NOTHING_TO_DO)
    if dry_run:
        return _outcome(table, Status.DRY_RUN)
    try:
        after = commit_changes(
            session,
            table,
            lambda now: ChangeSet((AssertCreate(),), now.creating),
            lambda found: (found.table_uuid == table.metadata.table_uuid) or None,
        )
    except CommitConflictError:
        if if_not_exists and session.catalog.exists(table.identifier):
            return _outcome(session.table(table.identifier), Status.NOTHING_TO_DO)
        raise
    return _outcome(after, Status.DONE)


def _outcome(table: Table, status: Status) -> Outcome:
    facts = _facts(table)
    shown = status is Status.DRY_RUN
    columns = ("column", "type", "nullable", "key")
    rows = [[item.name, item.type, not item.required, item.key] for item in facts.columns]
    return Outcome(
        status=status,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
        details=[Detail("columns", columns, rows)] if shown else [],
    )


def _facts(table: Table) -> CreationFacts:
    metadata, schema = table.metadata, table.schema
    return CreationFacts(
        location=metadata.location,
        format_version=metadata.format_version,
        columns=column_facts(schema),
        partition_by=partition_terms(table.spec, schema),
        sort_by=sort_terms(metadata.sort_order(), schema),
        properties=dict(table.properties),
    )
