"""What an upsert will do: the ingest of its source, its key, and how old rows go. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lake.core.deletes.writers import check_delete_files
from lake.core.engine.selection import engine_name
from lake.core.errors import InvalidRequestError
from lake.core.ingest.plan import UPSERT, IngestOptions, IngestPlan, describe, plan_ingest
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
from lake.core.upsert.rejects import check_rejects

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table

# Keys are only read: what is loaded takes so many times as long.
_KEYS_WEIGH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertPlan:
    """A decided upsert.

    Args:
        ingest: how the source becomes data files.
        options: what was asked.
        deletes: how old rows are deleted, one of `lake.core.upsert.options.MODES`.
        key: ids of the key's columns.
        order: ids of the columns that rank rows of one key.
        table_bytes: about how much input matching is worth.
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
    """Look at source and table and decide; nothing is written.

    Raises:
        BadInputError: as `plan_ingest`, or a column cannot be part of a key.
        RefusedError: the table's old rows could not be deleted in the mode.
        InvalidRequestError: there is no key.
    """
    if ingest.stage and options.deletes != EQUALITY:
        raise InvalidRequestError(
            f"--stage and --deletes {options.deletes or POSITION} contradict each other: the rows that go are "
            "looked for in the table as it is",
            hint=f"--stage --upsert --deletes {EQUALITY} deletes by key without a look at the table",
        )
    if options.rejects is not None:
        check_rejects(options.rejects)
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
            raise InvalidRequestError(f"--order-by {name}: its values have no order")
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
    # A key that others insert meanwhile is a conflict at any level: else it would be there twice.
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
    """Return about how many bytes of input the key columns of all of a branch's files weigh."""
    head = None if table.creating else ancestry.branch_head(table.metadata, branch)
    if head is None:
        return 0
    found = live_files(table, head, columns=("file_size_in_bytes",), with_deletes=False)
    part = min(1, len(key) / max(1, len(table.schema.fields)))
    return int(found.bytes * part / _KEYS_WEIGH)


def describe_upsert(plan: UpsertPlan) -> dict[str, Any]:
    """Return the plan as it is shown."""
    schema = plan.ingest.schema
    return {
        **describe(plan.ingest),
        "key": [schema.find_column_name(column) for column in plan.key],
        "order_by": [schema.find_column_name(column) for column in plan.order],
        "deletes": plan.deletes,
        "table_bytes": plan.table_bytes,
    }
