"""Commit rewritten manifests; a plan that another writer invalidated is made again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base.errors import LakeError
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.maintain.manifest_rewrite.explanation import explained, left_alone
from lake.core.maintain.manifest_rewrite.facts import ManifestRewriteResult
from lake.core.maintain.manifest_rewrite.plan import ManifestOptions, ManifestPlan, plan_manifests
from lake.core.table.manifests.clusters import Clustering
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import read_list
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.replanning import Start, replanned

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_COLUMNS = (
    *("spec_id", "content", "manifests", "manifests_after", "bytes"),
    *("per_partition", "per_partition_after"),
)


def preview(plan: ManifestPlan, *, explain: bool = False, verbose: bool = False) -> Outcome:
    """Return a dry run's outcome.

    Args:
        plan: the plan.
        explain: also show why manifests are left alone.
        verbose: with `explain`, also list them.
    """
    outcome = _outcome(plan, Status.DRY_RUN)
    if not explain:
        return outcome
    facts = replace(plan.facts(), left_alone=left_alone(plan))
    return explained(plan).explain(replace(outcome, plan=facts), verbose=verbose)


def execute(session: Session, table: Table, options: ManifestOptions, operation_id: str) -> Outcome:
    """Plan and commit; others may commit meanwhile.

    Raises:
        CommitConflictError: other writers replaced the manifests each time; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    require_writable(table, options.branch)
    found: dict[tuple[int, int], Clustering] = {}

    def measured(content: int, spec_id: int, clustering: Clustering) -> None:
        found[content, spec_id] = clustering

    def attempt(start: Start) -> tuple[ManifestPlan, Committed | None, str]:
        plan = plan_manifests(start.table, options, reads_all=False)
        if plan.is_empty:
            return plan, None, start.operation_id
        operation = replace(plan.operation, measured=measured)
        request = CommitRequest(operation_id=start.operation_id, branch=options.branch)
        done = commit_snapshot(session, start.table, operation, request)
        return plan, done, start.operation_id

    first = Start(session, table, operation_id)
    plan, done, operation_id = replanned(attempt, first, Start.renewed)
    if done is None:
        return _outcome(plan, Status.NOTHING_TO_DO)
    left = _manifests_left(session, done.table, options.branch)
    groups = [replace(x, clustering=found[x.content, x.spec_id]) for x in plan.groups]
    plan = replace(plan, groups=groups)
    result = ManifestRewriteResult(rewritten=plan.rewritten, manifests=left)
    return _outcome(plan, Status.DONE, result, operation_id, done.snapshot_ids)


def _manifests_left(session: Session, table: Table, branch: str) -> int | None:
    """Return the number of manifests of a branch; None, with a warning, if they cannot be read after the commit."""
    head = ancestry.branch_head(table.metadata, branch)
    try:
        return read_list(table.storage, table.metadata, head).num_rows if head else 0
    except LakeError as error:
        session.warn(f"the manifests were rewritten, and cannot be counted: {error.message}")
        return None


def _outcome(
    plan: ManifestPlan,
    status: Status,
    result: Facts = NoFacts(),
    operation_id: str | None = None,
    snapshot_ids: tuple[int, ...] = (),
) -> Outcome:
    facts = plan.facts()
    rows = [list(group.document().values()) for group in facts.groups]
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=ancestry.head_id(plan.table.metadata, plan.options.branch),
        snapshot_ids=snapshot_ids,
        plan=facts,
        result=result,
        details=[Detail("manifests", _COLUMNS, rows)] if rows else [],
    )
