"""Plan an upsert: the ingest of its source, its key, and how old rows are deleted. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.types import UnknownType

from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.deletes.writers import check_delete_files
from lake.core.engine.selection import engine_name
from lake.core.load.ingest.facts import ExaminedFacts, IngestFacts, UpsertFacts
from lake.core.load.ingest.options import UPSERT, LoadRequest
from lake.core.load.ingest.plan import IngestPlan, describe, plan_ingest
from lake.core.load.upsert.options import (
    EQUALITY,
    FIRST_ROW,
    NONE,
    PARTIAL_UPDATE,
    POSITION,
    UpsertOptions,
    check_mode,
    column_ids,
    deletes_of,
    key_ids,
    sequence_id,
    unwanted_deletes,
)
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.properties.table_properties import (
    COPY_ON_WRITE,
    MERGE_ISOLATION,
    UPSERT_ENABLED,
    Use,
    warnings,
)
from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import live_files
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from lake.core.table.catalogs.catalog import Table

# Keys are only read; loading the same number of bytes takes this many times as long.
_LOAD_TO_READ_RATIO = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertPlan:
    """A planned upsert.

    Args:
        ingest: the plan for writing the source to data files.
        options: the requested options.
        deletes: how old rows are deleted, one of `UPSERT_MODES`.
        key: ids of the key's columns.
        order: ids of the columns that rank rows with one key; the first is the sequence, if there is one.
        sequence: the id of the column that source rows and the table's rows are compared by; None for none.
        where: the filter of the table's rows that are compared; None for all.
        columns: ids of the source's columns, if rows are merged column by column.
        overwrites: ids of those of them in which NULL replaces the table's value.
        table_bytes: the approximate cost of matching, as input bytes.
    """

    ingest: IngestPlan
    options: UpsertOptions
    deletes: str
    key: Sequence[int] = ()
    order: Sequence[int] = ()
    sequence: int | None = None
    where: BooleanExpression | None = None
    columns: Sequence[int] = ()
    overwrites: Sequence[int] = ()
    table_bytes: int = 0

    @property
    def keeps_first(self) -> bool:
        """Whether a row whose key exists is dropped."""
        return self.options.merge == FIRST_ROW

    @property
    def is_partial(self) -> bool:
        """Whether the source's rows are merged into the table's rows, column by column."""
        return self.options.merge == PARTIAL_UPDATE

    @property
    def may_drop(self) -> bool:
        """Whether source rows are dropped depending on the table's rows."""
        return self.keeps_first or self.sequence is not None


def plan_upsert(
    session: Session, identifier: str, request: LoadRequest, options: UpsertOptions
) -> UpsertPlan:
    """Plan an upsert from the source and the table; nothing is written.

    Raises:
        BadInputError: as `plan_ingest`, or a column cannot be part of a key.
        RefusedError: the mode cannot delete the table's old rows.
        InvalidRequestError: there is no key.
    """
    ingest = request.options
    if ingest.stage and options.deletes != EQUALITY:
        raise _not_staged(options)
    # check: sequence-of-table-changes
    if options.changes_column is not None and ingest.from_table and options.sequence is None:
        raise InvalidRequestError(
            f"{Option.CHANGES_COLUMN} and {Option.FROM_TABLE} need {Option.SEQUENCE}: a table's rows have no order "
            "in which changes could be applied"
        )
    partial = options.merge == PARTIAL_UPDATE
    wanted = replace(
        request,
        options=replace(ingest, mode=UPSERT),
        partial=partial,
        changes_column=options.changes_column,
        needs=options.needs(ingest.missing),
    )
    plan = plan_ingest(session, identifier, wanted)
    properties = plan.table.properties
    deletes = NONE if options.merge == FIRST_ROW else deletes_of(properties, options.deletes)
    if plan.earlier.needs_no_source:
        return UpsertPlan(ingest=plan, options=options, deletes=deletes)
    key = key_ids(plan.schema, options.key)
    sequence = _sequence(plan, options)
    where = _match_filter(session, plan, options)
    order = column_ids(plan.schema, options.order_by)
    for column in order:
        if not plan.schema.find_type(column).is_primitive:
            name = plan.schema.find_column_name(column)
            raise InvalidRequestError(
                f"{Option.ORDER_BY} {name}: rows cannot be ordered by a column of this type"
            )
    check_mode(
        deletes,
        format_version=plan.table.metadata.format_version,
        schema=plan.schema,
        spec=plan.table.spec,
        key=key,
    )
    _check_properties(session, plan, deletes)
    read = 0 if deletes == EQUALITY else _key_bytes(plan.table, ingest.branch, key)
    plan = replace(plan, also_read_bytes=read)
    engine = engine_name(session.settings.engine, plan.divisible_bytes, session.settings)
    return UpsertPlan(
        ingest=replace(plan, engine=engine),
        options=options,
        deletes=deletes,
        key=key,
        order=order if sequence is None else [sequence, *order],
        sequence=sequence,
        where=where,
        columns=_source_columns(plan) if partial else (),
        overwrites=_overwrites(plan, options, key),
        table_bytes=read,
    )


def _not_staged(options: UpsertOptions) -> InvalidRequestError:
    """Return the error for a load whose rows or deletes would be wrong if the table changes before the commit."""
    hint = f"load into a {Option.BRANCH}, and move main to it with lake ref"
    if options.merge in {FIRST_ROW, PARTIAL_UPDATE}:
        option, value = Option.MERGE, options.merge
    else:
        option, value = Option.DELETES, options.deletes or POSITION
        hint = f"use {option} {EQUALITY}, which deletes by key without reading the table; or {hint}"
    return InvalidRequestError(
        f"{Option.STAGE} and {option} {value} cannot be combined: the rows to "
        f"{'add' if options.merge == FIRST_ROW else 'delete'} are searched for when the load runs, and a compaction "
        "or another load may move or add such rows before the commit",
        hint=hint,
    )


def _sequence(plan: IngestPlan, options: UpsertOptions) -> int | None:
    """Return the id of the sequence column.

    Raises:
        BadInputError: a source lacks it.
    """
    if options.sequence is None:
        return None
    column = sequence_id(plan.schema, options.sequence)
    if options.sequence in plan.missing:
        raise BadInputError(
            f"{Option.SEQUENCE} {options.sequence}: a source does not have this column"
        )
    return column


def _source_columns(plan: IngestPlan) -> list[int]:
    """Return the ids of the top-level columns that a source has, without those that only contain NULL."""
    return [
        item.field_id
        for item in plan.schema.fields
        if item.name not in plan.absent and not isinstance(item.field_type, UnknownType)
    ]


def _overwrites(plan: IngestPlan, options: UpsertOptions, key: Sequence[int]) -> list[int]:
    """Return the ids of the columns in which NULL replaces the table's value.

    Raises:
        NotFoundError: there is no such column.
        InvalidRequestError: it is part of the key, or is in a struct.
        BadInputError: a source lacks it.
    """
    ids = column_ids(plan.schema, options.null_overwrites)
    tops = {item.field_id for item in plan.schema.fields}
    for column, name in zip(ids, options.null_overwrites, strict=True):
        if column in key:
            raise InvalidRequestError(
                f"{Option.NULL_OVERWRITES} {name}: the column is part of the key, which is never NULL"
            )
        if column not in tops:
            raise InvalidRequestError(
                f"{Option.NULL_OVERWRITES} {name}: the column is part of another column"
            )
        if name in plan.missing:
            raise BadInputError(
                f"{Option.NULL_OVERWRITES} {name}: a source does not have this column"
            )
    return ids


def _match_filter(
    session: Session, plan: IngestPlan, options: UpsertOptions
) -> BooleanExpression | None:
    """Return the filter of the rows that keys are compared with; warn that other rows stay."""
    if options.match_where is None:
        return None
    where = parse_filter(options.match_where)
    bind_filter(where, plan.table.schema)
    session.warn(
        f"keys are compared with the rows of {Option.MATCH_WHERE} only: a key that another row has will be in the "
        "table twice"
    )
    return where


def _check_properties(session: Session, plan: IngestPlan, deletes: str) -> None:
    """Check the table's properties that an upsert depends on; warn about those that it does not honour."""
    properties, version = plan.table.properties, plan.table.metadata.format_version
    # A concurrent insert of the same key is a conflict at any isolation level; otherwise the key would exist twice.
    MERGE_ISOLATION.of(properties)
    vectors = deletes == POSITION and version >= DELETION_VECTORS_SINCE
    if deletes not in {COPY_ON_WRITE, NONE} and not vectors:
        check_delete_files(plan.settings(""))
    if deletes == POSITION and not vectors:
        for ignored in warnings(properties, [Use.DELETE]):
            session.warn(ignored)
    if unwanted := unwanted_deletes(properties, deletes):
        session.warn(unwanted)


def _key_bytes(table: Table, branch: str, key: Sequence[int]) -> int:
    """Estimate the cost, as input bytes, of reading the key columns of all of a branch's files."""
    head = None if table.creating else ancestry.branch_head(table.metadata, branch)
    if head is None:
        return 0
    files = live_files(table, head, columns=("file_size_in_bytes",), with_deletes=False)
    part = min(1, len(key) / max(1, len(table.schema.fields)))
    return int(files.bytes * part / _LOAD_TO_READ_RATIO)


def upsert_of_property(session: Session, plan: IngestPlan) -> UpsertOptions | None:
    """Return the options of the upsert that a table's property makes of a plain load; None if it appends.

    The rows of the table are deleted by key without reading them, as Flink's sink does with this property.

    Raises:
        InvalidRequestError: the property has a value that is not allowed.
    """
    table = plan.table
    if plan.options.no_upsert or table.creating or not UPSERT_ENABLED.of(table.properties):
        return None
    key = sorted(table.schema.identifier_field_ids)
    if not key:
        session.warn(
            f"the table property {UPSERT_ENABLED.name} has no effect, because the schema has no identifier fields: "
            "rows are appended"
        )
        return None
    names = ", ".join(str(table.schema.find_column_name(column)) for column in key)
    session.warn(
        f"rows replace the rows with the same {names}, because the table property {UPSERT_ENABLED.name} is true; "
        f"{Option.NO_UPSERT} appends them"
    )
    return UpsertOptions(deletes=EQUALITY)


def describe_upsert(plan: UpsertPlan, examined: ExaminedFacts | None = None) -> IngestFacts:
    """Return the plan for the outcome; `examined` is for a dry run."""
    schema, options = plan.ingest.schema, plan.options
    is_log = options.changes_column is not None
    by_key = UpsertFacts(
        key=[str(schema.find_column_name(column)) for column in plan.key],
        order_by=[str(schema.find_column_name(column)) for column in plan.order],
        deletes=plan.deletes,
        merge=options.merge if plan.keeps_first or plan.is_partial else None,
        null_overwrites=list(options.null_overwrites) or None,
        sequence=options.sequence or None,
        match_where=options.match_where or None,
        changes_column=options.changes_column,
        changes_mode="upsert" if is_log else None,
        ignore_deletes=options.ignore_deletes if is_log else None,
        table_bytes=plan.table_bytes,
        examined=examined,
    )
    return replace(describe(plan.ingest), by_key=by_key)
