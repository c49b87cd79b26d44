"""Set a branch back to an earlier snapshot, and report what it no longer contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lake.core.base.errors import NotFoundError, RefusedError
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.units import format_time, iso_time
from lake.core.maintain.branching.branches import moved
from lake.core.maintain.branching.facts import RollbackFacts
from lake.core.table.catalogs.catalog import Table
from lake.core.table.flink.commits import JOB_ID
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import read_list
from lake.core.table.snapshots.run_ids import RUN_ID
from lake.core.table.snapshots.streams import QUERY_ID, STREAM, StreamEpoch
from lake.core.table.snapshots.summary import declared_totals
from lake.core.transaction.commit.refs import commit_refs

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.transaction.session import Session

# How many snapshots a message lists.
_LISTED = 3
_COLUMNS = ("snapshot_id", "committed_at", "operation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """A branch and the snapshot that becomes its head.

    Args:
        table: the table that the plan was made for.
        branch: the branch.
        head: its head.
        target: the snapshot that becomes its head.
        hidden: the snapshots that are then in the history of no branch and have no tag, newest first.
        is_ancestor: whether the target is in the branch's history.
    """

    table: Table
    branch: str
    head: Snapshot
    target: Snapshot
    hidden: Sequence[Snapshot]
    is_ancestor: bool

    @property
    def is_empty(self) -> bool:
        """Whether the branch already is at the snapshot."""
        return self.head.snapshot_id == self.target.snapshot_id

    def facts(self) -> RollbackFacts:
        """Return the plan by its names in the output."""
        before, after = declared_totals(self.head), declared_totals(self.target)
        return RollbackFacts(
            from_snapshot=str(self.head.snapshot_id),
            to_snapshot=str(self.target.snapshot_id),
            rows_before=before["rows"],
            rows_before_at_most=before["rows_at_most"],
            rows_after=after["rows"],
            rows_after_at_most=after["rows_at_most"],
            hidden_snapshots=[str(item.snapshot_id) for item in self.hidden],
        )


def earlier_snapshots(table: Table, *, branch: str) -> str:
    """Return the newest snapshots to which a branch can be set back, as one line for people.

    Raises:
        NotFoundError: there is no such branch.
    """
    head = ancestry.head_id(table.metadata, branch)
    found = [
        f"{branch}~{number} is {item.snapshot_id} ({format_time(item.timestamp_ms)})"
        for number, item in enumerate(islice(ancestry.ancestors(table.metadata, head), _LISTED + 1))
    ][1:]
    return "; ".join([*found, f"`lake snapshots {table.identifier}` lists all snapshots"])


def plan_rollback(table: Table, ref: str, *, branch: str, anywhere: bool) -> RollbackPlan:
    """Find the snapshot, and the snapshots that the branch will no longer contain.

    Args:
        table: the table.
        ref: the snapshot: its id, a tag, a branch, or ``@`` and a time.
        branch: the branch to set.
        anywhere: whether the snapshot may be outside of the branch's history.

    Raises:
        NotFoundError: there is no such snapshot or branch, the branch is empty, or the manifest list is missing.
        RefusedError: the snapshot is not in the branch's history, or the branch is a consumer's.
        CorruptFileError: the snapshot's manifest list cannot be read.
    """
    metadata = table.metadata
    if ancestry.is_consumer(branch):
        raise RefusedError(f"{branch} records the progress of a reader, and receives no commits")
    head = ancestry.branch_head(metadata, branch)
    if head is None:
        raise NotFoundError(f"branch {branch} of {table.identifier} has no snapshots")
    target = ancestry.resolve(metadata, ref, branch=branch)
    history = list(ancestry.ancestors(metadata, head.snapshot_id))
    is_ancestor = any(item.snapshot_id == target.snapshot_id for item in history)
    if not is_ancestor and not anywhere:
        raise RefusedError(
            f"snapshot {target.snapshot_id} is not in the history of branch {branch}",
            hint=f"add {Option.ANYWHERE} to set the branch to it anyway",
        )
    # The branch could not be read if the snapshot's files were deleted.
    read_list(table.storage, metadata, target)  # check: target-readable
    others = {name: item.snapshot_id for name, item in metadata.refs.items() if name != branch}
    seen = ancestry.reachable(metadata, (target.snapshot_id, *others.values()))
    hidden = [item for item in history if item.snapshot_id not in seen]
    return RollbackPlan(
        table=table, branch=branch, head=head, target=target, hidden=hidden, is_ancestor=is_ancestor
    )


def execute(session: Session, plan: RollbackPlan, *, dry_run: bool) -> Outcome:
    """Set the branch to the snapshot.

    Raises:
        CommitConflictError: the branch was changed meanwhile; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if plan.is_empty:
        return _outcome(plan, Status.NOTHING_TO_DO)
    if dry_run:
        return _outcome(plan, Status.DRY_RUN)
    change = moved(plan.table.metadata, plan.branch, plan.head, plan.target)
    commit_refs(session, plan.table, [change])
    return _outcome(plan, Status.DONE)


def _outcome(plan: RollbackPlan, status: Status) -> Outcome:
    rows = [
        [
            str(item.snapshot_id),
            iso_time(item.timestamp_ms),
            item.summary.operation.value if item.summary else None,
        ]
        for item in plan.hidden
    ]
    facts = plan.facts()
    return Outcome(
        status=status,
        base_snapshot_id=plan.head.snapshot_id,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
        warnings=_warnings(plan) if not plan.is_empty else [],
        details=[Detail("snapshots that the branch no longer contains", _COLUMNS, rows)]
        if rows
        else [],
    )


def _warnings(plan: RollbackPlan) -> list[str]:
    """Return whose commits the branch no longer contains, because their writers load the rows again, or do not."""
    summaries = [properties_of(item) for item in plan.hidden]
    runs = sum(RUN_ID in item for item in summaries)
    streams = sorted(
        {epoch.stream for item in summaries if (epoch := StreamEpoch.of_text(item.get(STREAM)))}
    )
    own = {RUN_ID, STREAM}
    jobs = sorted({item[JOB_ID] for item in summaries if JOB_ID in item and not own & item.keys()})
    warnings = []
    if runs:
        warnings.append(
            f"{runs} loads with a run id leave the branch: the same run ids load their rows again"
        )
    if streams:
        warnings.append(
            f"epochs of stream {', '.join(streams)} leave the branch: a stream of files or messages does not load "
            "them again by itself"
        )
    queries = sorted({item[QUERY_ID] for item in summaries if QUERY_ID in item})
    if queries:
        warnings.append(
            f"epochs of Spark's query {', '.join(queries)} leave the branch: a query that goes on from its "
            "checkpoint does not commit them again"
        )
    if jobs:
        warnings.append(
            f"commits of Flink job {', '.join(jobs)} leave the branch: a job that goes on from a newer checkpoint "
            "does not commit them again"
        )
    return warnings
