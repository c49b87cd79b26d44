"""What a load of a change log will do: the ingest of its source, its key, and how changes are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lake.core.base.choices import CHANGE_MODES
from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.base.options import Option
from lake.core.data.deletes.delta_writer import RETRACT, UPSERT, DeltaSettings, check_key
from lake.core.data.deletes.writers import check_delete_files
from lake.core.load.ingest.facts import ChangelogFacts, IngestFacts
from lake.core.load.ingest.options import LoadRequest, Needs
from lake.core.load.ingest.plan import IngestPlan, describe, plan_ingest
from lake.core.load.upsert.options import EQUALITY, key_ids, unwanted_deletes
from lake.core.load.upsert.row_kinds import WRITTEN
from lake.core.table.snapshots import ancestry
from lake.core.transaction.session import Session
from lake.core.transaction.spec_conditions import check_specs

_CHANGES = "changes"
_DELETES_SINCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """The options of the load of a change log.

    Args:
        changes_column: the column of the source that contains the row kind.
        changes_mode: one of `CHANGE_MODES`, see `lake.core.data.deletes.delta_writer`.
        key: columns that identify rows; empty for the schema's identifier fields.
        ignore_deletes: whether rows of kind -D are left out. Rows of kind -U are not: without them, a ``retract``
            load would leave the old row beside the new one.
        local_merge: the size of changes of one task that are merged by key before they are sent and written;
            None to merge none. For ``upsert`` only.
    """

    changes_column: str
    changes_mode: str
    key: Sequence[str] = ()
    ignore_deletes: bool = False
    local_merge: int | None = None

    def __post_init__(self) -> None:
        if self.changes_mode not in CHANGE_MODES:
            raise InvalidRequestError(
                f"{Option.CHANGES_MODE} {self.changes_mode!r} is not one of {', '.join(CHANGE_MODES)}"
            )
        if self.local_merge is not None and self.changes_mode != UPSERT:
            raise InvalidRequestError(
                f"{Option.LOCAL_MERGE} needs {Option.CHANGES_MODE} {UPSERT}: each change of a {RETRACT} log "
                "has its own old row"
            )

    def needs(self, missing: str | None) -> Needs | None:
        """Return which columns of the table the source must have; the argument is `IngestOptions.missing`."""
        if missing is not None:
            return None
        return Needs(key=self.key, kinds=self.changes_column, whole_kinds=WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogLoadPlan:
    """A planned load of a change log."""

    ingest: IngestPlan
    options: ChangeOptions
    key: Sequence[int] = ()

    def settings(self, operation_id: str) -> DeltaSettings:
        """Return the settings for writing changes."""
        table = self.ingest.table
        return DeltaSettings(
            write=self.ingest.settings(operation_id),
            key_ids=list(self.key),
            mode=self.options.changes_mode,
            format_version=table.metadata.format_version,
            fresh=bool(table.creating),
        )


def plan_changelog_load(
    session: Session, identifier: str, request: LoadRequest, options: ChangeOptions
) -> ChangelogLoadPlan:
    """Plan a load from the source and the table; nothing is written.

    Raises:
        BadInputError: as `plan_ingest`, or the source lacks the column with the row kind.
        RefusedError: the table's old rows cannot be deleted by the key.
        InvalidRequestError: there is no key, or the rows have no order.
    """
    ingest = request.options
    if ingest.from_table:
        raise InvalidRequestError(
            f"{Option.CHANGES_COLUMN} and {Option.FROM_TABLE} need {Option.SEQUENCE}: a table's rows have no order "
            "in which changes could be applied",
            hint=f"use {Option.CHANGES_MODE} {UPSERT}, {Option.DELETES} position and {Option.SEQUENCE}",
        )
    wanted = replace(
        request,
        options=replace(ingest, mode=_CHANGES),
        changes_column=options.changes_column,
        needs=options.needs(ingest.missing),
    )
    plan = plan_ingest(session, identifier, wanted)
    if plan.earlier.needs_no_source:
        return ChangelogLoadPlan(ingest=plan, options=options)
    table, schema = plan.table, plan.schema
    if table.metadata.format_version < _DELETES_SINCE:
        raise RefusedError("a table of format version 1 has no delete files")
    key = key_ids(schema, options.key, Option.CHANGES_COLUMN)
    check_key(schema, table.spec, key, options.changes_mode)
    head = None if table.creating else ancestry.branch_head(table.metadata, ingest.branch)
    if head is not None:
        check_specs(table, head)
    check_delete_files(plan.settings(""))
    if unwanted := unwanted_deletes(table.properties, EQUALITY):
        session.warn(unwanted)
    return ChangelogLoadPlan(ingest=plan, options=options, key=key)


def describe_changes(plan: ChangelogLoadPlan) -> IngestFacts:
    """Return the plan as it is shown."""
    schema, options = plan.ingest.schema, plan.options
    by_key = ChangelogFacts(
        changes_column=options.changes_column,
        changes_mode=options.changes_mode,
        ignore_deletes=options.ignore_deletes,
        local_merge_bytes=options.local_merge or None,
        key=[str(schema.find_column_name(column)) for column in plan.key],
    )
    return replace(describe(plan.ingest), by_key=by_key)
