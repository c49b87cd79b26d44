"""Commit repairs; a plan that another writer has made invalid is made again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.table.update import AssertTableUUID

from lake.core.base.errors import CommitConflictError
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.repair.absence import gone_files
from lake.core.maintain.repair.plan import RepairOptions, RepairPlan, plan_repairs
from lake.core.maintain.repair.report import outcome_of
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshots
from lake.core.transaction.replanning import Start, replanned

if TYPE_CHECKING:
    from lake.core.transaction.commit.operations import SnapshotStep
    from lake.core.transaction.session import Session


def execute(session: Session, table: Table, options: RepairOptions, operation_id: str) -> Outcome:
    """Plan, and make all repairs in one commit.

    Raises:
        CommitConflictError: others committed during each try; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    verbose = session.settings.verbose

    def attempt(start: Start) -> tuple[RepairPlan, Sequence[int], str]:
        plan = plan_repairs(start.table, options)
        done = () if plan.is_empty else _commit(session, plan, start.operation_id)
        return plan, done, start.operation_id

    first = Start(session, table, operation_id)
    plan, snapshot_ids, operation_id = replanned(attempt, first, Start.renewed)
    if plan.is_empty:
        return outcome_of(plan, Status.NOTHING_TO_DO, verbose=verbose)
    return outcome_of(
        plan,
        Status.DONE,
        verbose=verbose,
        operation_id=operation_id if snapshot_ids else None,
        snapshot_ids=snapshot_ids,
        result=plan.facts(),
    )


def _commit(session: Session, plan: RepairPlan, operation_id: str) -> Sequence[int]:
    if not plan.operations:
        commit_changes(
            session,
            plan.table,
            lambda now: _changes(plan, now),
            lambda metadata: plan.is_made(metadata) or None,
        )
        return ()
    steps = plan.steps

    def decide(now: Table) -> Sequence[SnapshotStep]:
        _require_same(plan, now)
        return steps

    request = CommitRequest(
        operation_id=operation_id,
        branch=plan.options.branch,
        requirements=plan.requirements,
        updates=plan.updates,
    )
    return commit_snapshots(session, plan.table, decide, request).snapshot_ids


def _changes(plan: RepairPlan, now: Table) -> ChangeSet:
    _require_same(plan, now)
    same = AssertTableUUID(uuid=plan.table.metadata.table_uuid)
    return ChangeSet((same, *plan.requirements), plan.updates)


def _require_same(plan: RepairPlan, now: Table) -> None:
    """Refuse a plan that was made on another state of the table or of its files.

    Raises:
        CommitConflictError: the branch, a ref or statistics were changed, or a file is there again.
    """
    if not plan.holds(now.metadata):
        raise CommitConflictError(
            f"{now.identifier} was changed after the repair was planned; nothing was changed",
            hint="run the command again",
        )
    gone = plan.missing.gone
    if back := gone - gone_files(now.storage, sorted(gone)):  # check: file-back-before-repair
        raise CommitConflictError(
            f"a file that was gone is there again: {min(back)}; nothing was changed",
            hint="run the command again",
        )
