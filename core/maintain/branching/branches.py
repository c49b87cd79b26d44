"""List, create and drop branches and tags; fast-forward branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.errors import NotFoundError, RefusedError
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.units import iso_time
from lake.core.maintain.branching.descent import require_contents
from lake.core.maintain.branching.facts import RefChangeFacts, RefFacts, RefsResult
from lake.core.maintain.branching.tags import check_name, retention_text
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.refs import BRANCH, RefChange, commit_refs

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.transaction.session import Session

_COLUMNS = ("ref", "type", "snapshot_id", "committed_at", "retain")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefPlan:
    """The change of one branch or tag.

    Args:
        table: the table that the plan was made for.
        change: the change; None if the ref already is as requested.
        hidden: the snapshots that are then in the history of no branch and no tag, newest first.
    """

    table: Table
    change: RefChange | None
    hidden: Sequence[int] = ()

    def facts(self) -> RefChangeFacts:
        """Return the plan by its names in the output."""
        change = self.change
        if change is None:
            return RefChangeFacts()
        return RefChangeFacts(
            ref=change.name,
            type=change.kind,
            from_snapshot=_id_text(change.before),
            to_snapshot=_id_text(change.after),
            hidden_snapshots=[str(item) for item in self.hidden],
        )


def _id_text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)


def plan_create(
    table: Table, name: str, *, kind: str, at: str | None, retain_ms: int | None
) -> RefPlan:
    """Plan to create a branch or tag.

    Args:
        table: the table.
        name: the name of the branch or tag.
        kind: `BRANCH` or `TAG`.
        at: its snapshot: id, tag, branch or ``@TIME``; None for the head of main.
        retain_ms: the age of its snapshot at which expiry drops it; None for the table's property.

    Raises:
        InvalidRequestError: the name cannot be that of a branch or tag.
        NotFoundError: there is no such snapshot.
        RefusedError: a ref of the other type, or with another snapshot, has the name.
    """
    check_name(name, kind)
    metadata = table.metadata
    start = ancestry.branch_head(metadata, ancestry.MAIN) if at is None else None
    if at is not None:
        start = ancestry.resolve(metadata, at)
    if start is None:
        raise NotFoundError(f"branch {ancestry.MAIN} of {table.identifier} has no snapshots")
    change = RefChange(
        name=name,
        kind=kind,
        before=None,
        after=start.snapshot_id,
        max_ref_age_ms=retain_ms,
    )
    ref = metadata.refs.get(name)
    if ref is None:
        return RefPlan(table=table, change=change)
    same = ref.snapshot_ref_type == kind and ref.snapshot_id == start.snapshot_id
    if same and retain_ms in {None, ref.max_ref_age_ms}:
        return RefPlan(table=table, change=None)
    raise RefusedError(
        f"{table.identifier} has a {ref.snapshot_ref_type} named {name} at snapshot {ref.snapshot_id}",
        hint=f"choose another name, or remove it first with {Option.DROPPED_REF}",
    )


def plan_drop(table: Table, name: str) -> RefPlan:
    """Plan to drop a branch or tag.

    Raises:
        NotFoundError: there is no such ref.
        RefusedError: it is main, or records the progress of a reader.
    """
    metadata = table.metadata
    if name == ancestry.MAIN:
        raise RefusedError(f"branch {name} cannot be dropped: every table has it")
    if ancestry.is_consumer(name):
        raise RefusedError(
            f"{name} records the progress of a reader",
            hint="`lake consumers` lists the readers of a table and removes one",
        )
    ref = metadata.refs.get(name)
    if ref is None:
        known = ", ".join(sorted(metadata.refs)[:20]) or "none"
        raise NotFoundError(
            f"{table.identifier} has no branch or tag named {name}", hint=f"its refs: {known}"
        )
    change = RefChange(
        name=name, kind=str(ref.snapshot_ref_type), before=ref.snapshot_id, after=None
    )
    return RefPlan(table=table, change=change, hidden=_hidden(metadata, name, ref.snapshot_id))


def _hidden(metadata: TableMetadata, name: str, head: int) -> list[int]:
    """Return the snapshots that only this ref has in its history."""
    others = [ref.snapshot_id for other, ref in metadata.refs.items() if other != name]
    seen = ancestry.reachable(metadata, others)
    found = (item.snapshot_id for item in ancestry.ancestors(metadata, head))
    return [item for item in found if item not in seen]


def plan_fast_forward(table: Table, branch: str, *, to: str) -> RefPlan:
    """Plan to move a branch forward to a descendant of its head.

    Source: org.apache.iceberg.UpdateSnapshotReferencesOperation.fastForward.

    Raises:
        NotFoundError: there is no such branch or snapshot.
        RefusedError: the snapshot does not descend from the branch's head.
        CorruptFileError: it lacks files of the head; see `require_contents`.
    """
    metadata = table.metadata
    if ancestry.is_consumer(branch):
        raise RefusedError(f"{branch} records the progress of a reader, and receives no commits")
    head = ancestry.branch_head(metadata, branch)
    target = ancestry.resolve(metadata, to, branch=branch)
    if head is not None and not ancestry.is_ancestor(
        metadata, head.snapshot_id, target.snapshot_id
    ):
        raise RefusedError(
            f"branch {branch} cannot be moved forward to snapshot {target.snapshot_id}, which does not descend "
            f"from its head {head.snapshot_id}",
            hint=f"both have commits that the other lacks; {Option.ANYWHERE} sets a branch to any snapshot",
        )
    if head is not None and head.snapshot_id == target.snapshot_id:
        return RefPlan(table=table, change=None)
    if head is not None:
        ancestry.require_descent(head, target)  # check: descent-of-branch
        require_contents(table, head, target)  # check: contents-of-head
    return RefPlan(table=table, change=moved(metadata, branch, head, target))


def moved(
    metadata: TableMetadata, branch: str, head: Snapshot | None, target: Snapshot
) -> RefChange:
    """Return the change that moves a branch from its head to a snapshot, and keeps its settings."""
    ref = metadata.refs.get(branch)
    return RefChange(
        name=branch,
        kind=BRANCH,
        before=head.snapshot_id if head else None,
        after=target.snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
    )


def execute(session: Session, plan: RefPlan, *, dry_run: bool) -> Outcome:
    """Make the change in one commit.

    Raises:
        CommitConflictError: the ref was changed meanwhile, or the snapshot has expired; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if plan.change is None:
        return _outcome(plan, plan.table, Status.NOTHING_TO_DO)
    if dry_run:
        return _outcome(plan, plan.table, Status.DRY_RUN)
    after = commit_refs(session, plan.table, [plan.change])
    return _outcome(plan, after, Status.DONE)


def list_refs(table: Table) -> Outcome:
    """Return a table's branches and tags: main, the other branches, then the tags."""
    return _outcome(RefPlan(table=table, change=None), table, Status.DONE)


def _outcome(plan: RefPlan, table: Table, status: Status) -> Outcome:
    rows = _rows(table.metadata)
    is_list = plan.change is None and status is Status.DONE
    facts = plan.facts()
    shown = [
        [row.name, row.type, row.snapshot_id, row.created, retention_text(row.max_ref_age_ms)]
        for row in rows
    ]
    return Outcome(
        status=status,
        base_snapshot_id=ancestry.head_id(table.metadata, ancestry.MAIN),
        plan=NoFacts() if is_list else facts,
        result=RefsResult(
            refs=rows, change=facts if status is Status.DONE and not is_list else None
        ),
        details=[Detail("refs", _COLUMNS, shown)] if is_list else [],
    )


def _rows(metadata: TableMetadata) -> list[RefFacts]:
    known = ancestry.snapshots_by_id(metadata)
    rows = []
    for name, ref in metadata.refs.items():
        snapshot = known.get(ref.snapshot_id)
        rows.append(
            RefFacts(
                name=name,
                type=str(ref.snapshot_ref_type),
                snapshot_id=str(ref.snapshot_id),
                created=iso_time(snapshot.timestamp_ms) if snapshot else None,
                max_ref_age_ms=ref.max_ref_age_ms,
                max_snapshot_age_ms=ref.max_snapshot_age_ms,
                min_snapshots_to_keep=ref.min_snapshots_to_keep,
            )
        )
    return sorted(rows, key=lambda row: (row.name != ancestry.MAIN, row.type, row.name))
