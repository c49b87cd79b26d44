"""Add planned files in one append commit, each file once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    SetPropertiesUpdate,
)

from lake.core.base.errors import CommitConflictError
from lake.core.base.facts import NoFacts
from lake.core.base.outcome import Detail, Outcome, Status, first_rows
from lake.core.load.file_addition.plan import AddPlan, refuse_known
from lake.core.spec.properties.table_properties import NAME_MAPPING
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshots
from lake.core.transaction.commit.guards import RunGuard
from lake.core.transaction.commit.operations import AppendFiles, SnapshotStep

if TYPE_CHECKING:
    from pyiceberg.table.update import TableUpdate

    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_AGAIN = "run the command again: it will plan for the table's new state"
_SHOWN = 20


def preview(session: Session, plan: AddPlan) -> Outcome:
    """Return the plan without changing anything."""
    status = Status.DRY_RUN if plan.files else Status.NOTHING_TO_DO
    return _outcome(session, plan, status)


def execute(session: Session, plan: AddPlan, operation_id: str) -> Outcome:
    """Commit the files of a plan, all or none; the operation's id is new for each commit.

    Raises:
        RefusedError: another process added one of the files meanwhile; nothing was changed.
        CommitConflictError: columns, partitioning or name mapping were changed meanwhile; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if not plan.files:
        return _outcome(session, plan, Status.NOTHING_TO_DO)
    guard = RunGuard(plan.run_id) if plan.run_id is not None else None
    step = SnapshotStep(
        operation=AppendFiles(added=plan.files, only_new=True),
        summary=guard.summary if guard else {},
    )
    paths = [item.path for item in plan.files]
    metadata = plan.table.metadata

    def decide(now: Table) -> Sequence[SnapshotStep]:
        known = find_referenced(now.storage, now.metadata, paths, known=metadata)
        refuse_known(now, known)
        _require_same(plan, now)
        return (step,)

    updates: tuple[TableUpdate, ...] = ()
    if plan.name_mapping is not None:
        updates = (SetPropertiesUpdate(updates={NAME_MAPPING.name: plan.name_mapping}),)
    request = CommitRequest(
        operation_id=operation_id,
        branch=plan.branch,
        guard=guard,
        requirements=(
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        ),
        updates=updates,
    )
    done = commit_snapshots(session, plan.table, decide, request)
    if done.already:
        return _outcome(session, plan, Status.NOTHING_TO_DO)
    return _outcome(session, plan, Status.DONE, operation_id, done.snapshot_ids)


def _require_same(plan: AddPlan, now: Table) -> None:
    """Check that the table still has what the files were compared with.

    Raises:
        CommitConflictError: it was changed.
    """
    before, mapping = plan.table, NAME_MAPPING.of(now.properties)
    # Another process may have set the mapping that this plan sets.
    known = {NAME_MAPPING.of(before.properties)}
    if plan.name_mapping is not None:
        known.add(plan.name_mapping)
    same = (
        before.metadata.current_schema_id == now.metadata.current_schema_id
        and before.metadata.default_spec_id == now.metadata.default_spec_id
        and mapping in known
    )
    if not same:
        raise CommitConflictError(
            f"the columns, the partitioning or the name mapping of {now.identifier} were changed meanwhile",
            hint=_AGAIN,
        )


def _outcome(
    session: Session,
    plan: AddPlan,
    status: Status,
    operation_id: str | None = None,
    snapshot_ids: Sequence[int] = (),
) -> Outcome:
    rows, notes = first_rows(plan.rows(), _SHOWN, "files", every=session.settings.verbose)
    columns, facts = ("file", "rows", "bytes", "partition", "in_table"), plan.facts()
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=ancestry.head_id(plan.table.metadata, plan.branch),
        snapshot_ids=snapshot_ids,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
        notes=[*notes, *_owners(plan)],
        details=[Detail("files", columns, rows)] if rows else [],
    )


def _owners(plan: AddPlan) -> list[str]:
    """Return what happens to the files when no snapshot references them any more."""
    notes = []
    if plan.own:
        notes.append(
            f"{len(plan.own)} of the files are in the table's folders: `lake expire` and `lake clean` delete them "
            "after no snapshot references them"
        )
    if other := len(plan.files) - len(plan.own):
        notes.append(
            f"{other} of the files are outside the table's folders: lake never deletes them, but Iceberg Java's "
            "expire_snapshots does"
        )
    return notes
