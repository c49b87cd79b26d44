"""Plan an upsert: the ingest of its source, its key, and how old rows are deleted. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lake.core.deletes.writers import check_delete_files
from lake.core.engine.selection import engine_name
from lake.core.errors import InvalidRequestError
from lake.core.ingest.plan import UPSERT, IngestOptions, IngestPlan, describe, plan_ingest
from lake.core.options import Option
from lake.core.properties.table_properties import COPY_ON_WRITE, MERGE_ISOLATION, Use, warnings
from lake.core.session import Session
from lake.core.snapshots import ancestry
from lake.core.snapshots.live_files import live_files
from lake.core.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.upsert.options import (
    EQUALITY,
    POSITION,
    UpsertOptions,
    check_mode,
    column_ids,
    deletes_of,
    key_ids,
    unwanted_deletes,
)

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table

# Keys are only read; loading the same number of bytes takes this many times as long.
_LOAD_TO_READ_RATIO = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertPlan:
    """A planned upsert.

    Args:
        ingest: the plan for writing the source to data files.
        options: the requested options.
        deletes: how old rows are deleted, one of `lake.core.upsert.options.MODES`.
        key: ids of the key's columns.
        order: ids of the columns that rank rows with one key.
        table_bytes: the approximate cost of matching, as input bytes.
    """

    ingest: IngestPlan
    options: UpsertOptions
    deletes: str
    key: Sequence[int] = ()
    order: Sequence[int] = ()
    table_bytes: int = 0


def plan_upsert(
    session: Session, identifier: str, ingest: IngestOptions, options: UpsertOptions
) -> UpsertPlan:
    """Plan an upsert from the source and the table; nothing is written.

    Raises:
        BadInputError: as `plan_ingest`, or a column cannot be part of a key.
        RefusedError: the mode cannot delete the table's old rows.
        InvalidRequestError: there is no key.
    """
    if ingest.stage and options.deletes != EQUALITY:
        raise InvalidRequestError(
            f"{Option.STAGE} and {Option.DELETES} {options.deletes or POSITION} cannot be combined: the rows to "
            "delete depend on the table's state at the commit",
            hint=f"use {Option.STAGE} {Option.UPSERT} {Option.DELETES} {EQUALITY}, which deletes by key without "
            "reading the table",
        )
    plan = plan_ingest(session, identifier, replace(ingest, mode=UPSERT))
    properties = plan.table.properties
    deletes = deletes_of(properties, options.deletes)
    if plan.is_settled:
        return UpsertPlan(ingest=plan, options=options, deletes=deletes)
    key = key_ids(plan.schema, options.key)
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
    engine = engine_name(session.settings.engine, plan.input_bytes + read, session.settings)
    return UpsertPlan(
        ingest=replace(plan, engine=engine, also_read_bytes=read),
        options=options,
        deletes=deletes,
        key=key,
        order=order,
        table_bytes=read,
    )


def _check_properties(session: Session, plan: IngestPlan, deletes: str) -> None:
    """Check the table's properties that an upsert depends on; warn about those that it does not honour."""
    properties, version = plan.table.properties, plan.table.metadata.format_version
    # A concurrent insert of the same key is a conflict at any isolation level; otherwise the key would exist twice.
    MERGE_ISOLATION.of(properties)
    vectors = deletes == POSITION and version >= DELETION_VECTORS_SINCE
    if deletes != COPY_ON_WRITE and not vectors:
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


def describe_upsert(plan: UpsertPlan) -> dict[str, Any]:
    """Return the plan for the outcome."""
    schema = plan.ingest.schema
    return {
        **describe(plan.ingest),
        "key": [schema.find_column_name(column) for column in plan.key],
        "order_by": [schema.find_column_name(column) for column in plan.order],
        "deletes": plan.deletes,
        "table_bytes": plan.table_bytes,
    }
