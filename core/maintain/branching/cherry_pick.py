"""Apply the change of one snapshot to a branch, as a fast-forward or as a new snapshot with the same files.

Source: org.apache.iceberg.CherryPickOperation and WapUtil. Beyond their checks, a pick is refused if the branch may
contain its rows already: by the id of a run, the epoch of a stream, a file that is live, or expired history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from lake.core.base.errors import CorruptFileError, NotFoundError, RefusedError
from lake.core.base.facts import NoFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.branching.branches import moved
from lake.core.maintain.branching.descent import require_contents
from lake.core.maintain.branching.facts import PickFacts
from lake.core.maintain.branching.pick_checks import (
    require_counted_files,
    require_replaced_all,
    require_stored,
)
from lake.core.spec.types.partition_codes import partition_tuples
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import ADDED, DELETED
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.branch_notes import PICKED_FROM, Marks, change_ids, with_sources
from lake.core.table.snapshots.completeness import missing_added_files_message, read_list
from lake.core.table.snapshots.run_ids import RUN_NOTES, has_run
from lake.core.table.snapshots.streams import (
    QUERY_NOTES,
    STREAM_NOTES,
    newest_epoch,
    newest_query_epoch,
)
from lake.core.table.snapshots.summary import REPLACE_PARTITIONS
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshots
from lake.core.transaction.commit.operations import (
    AppendFiles,
    EntryTable,
    ReplacePartitions,
    SnapshotStep,
)
from lake.core.transaction.commit.partition_index import LivePartitions
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.commit.refs import TAG, commit_refs
from lake.core.transaction.commit.removed_files import refuse_live

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.transaction.session import Session

# Summary keys of a staged snapshot, and of the snapshot that publishes it.
WAP_ID, PUBLISHED_WAP_ID = "wap.id", "published-wap-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPlan:
    """A snapshot to apply to a branch.

    Args:
        table: the table that the plan was made for.
        branch: the branch.
        head: its head; None for an empty branch.
        source: the snapshot.
        fast_forward: whether the branch moves to the snapshot itself, because that was built on its head.
        added: the data files that the snapshot added, one table per spec.
        removed_files: the number of data files that the snapshot removed.
    """

    table: Table
    branch: str
    head: Snapshot | None
    source: Snapshot
    fast_forward: bool
    added: Sequence[EntryTable]
    removed_files: int

    @property
    def replaces_partitions(self) -> bool:
        """Whether the snapshot replaced the partitions to which it added files."""
        return _replaces_partitions(self.source)

    def summary(self) -> dict[str, str]:
        """Return the keys that link the new snapshot with its source."""
        wap_id = wap_id_of(self.source)
        published = {PUBLISHED_WAP_ID: wap_id} if wap_id else {}
        return {PICKED_FROM: str(self.source.snapshot_id), **published}

    def facts(self) -> PickFacts:
        """Return the plan by its names in the output."""
        rows = sum(pc.sum(part.entries["record_count"]).as_py() or 0 for part in self.added)
        return PickFacts(
            source_snapshot=str(self.source.snapshot_id),
            operation=ancestry.operation_of(self.source),
            wap_id=wap_id_of(self.source),
            fast_forward=self.fast_forward,
            added_files=sum(part.entries.num_rows for part in self.added),
            added_rows=rows,
            removed_files=self.removed_files,
        )


def wap_id_of(snapshot: Snapshot) -> str | None:
    """Return the id under which a snapshot was staged; None if it was not."""
    return properties_of(snapshot).get(WAP_ID) or None


def plan_publish(table: Table, wap_id: str, *, branch: str) -> PickPlan:
    """Plan to apply the snapshot that was staged under a WAP id. Source: PublishChangesProcedure.

    Raises:
        NotFoundError: no snapshot has the id, or there is no such branch.
        RefusedError: several snapshots have the id; see also `plan_pick`.
    """
    staged = [item for item in table.metadata.snapshots if wap_id_of(item) == wap_id]
    if not staged:
        known = sorted({found for item in table.metadata.snapshots if (found := wap_id_of(item))})
        raise NotFoundError(
            f"{table.identifier} has no snapshot with WAP id {wap_id}",
            hint=f"its WAP ids: {', '.join(known[:20]) or 'none'}",
        )
    if len(staged) > 1:
        ids = ", ".join(str(item.snapshot_id) for item in staged[:20])
        raise RefusedError(
            f"{len(staged)} snapshots of {table.identifier} have WAP id {wap_id}: {ids}",
            hint="choose one of them, and apply it with `lake cherry-pick`",
        )
    return _plan(table, staged[0], branch=branch)


def plan_pick(table: Table, ref: str, *, branch: str) -> PickPlan:
    """Plan to apply the change of a snapshot to a branch.

    Args:
        table: the table.
        ref: the snapshot: its id, a tag, a branch, or ``@`` and a time.
        branch: the branch that receives the change.

    Raises:
        NotFoundError: there is no such snapshot or branch.
        RefusedError: the branch contains the change or may contain it, or the change cannot be repeated on its head.
        CorruptFileError: the snapshot's files cannot be determined.
    """
    source = ancestry.resolve(table.metadata, ref, branch=branch)
    return _plan(table, source, branch=branch)


def _plan(table: Table, source: Snapshot, *, branch: str) -> PickPlan:
    require_writable(table, branch)
    metadata = table.metadata
    head = ancestry.branch_head(metadata, branch)
    fast_forward = source.parent_snapshot_id == (head.snapshot_id if head else None)
    if fast_forward and head is not None:
        # A wrong parent would make the branch lose the rows of its head.
        ancestry.require_descent(head, source)
        require_contents(table, head, source)  # check: contents-of-picked-head
        _refuse_contained(table, branch, source)
    if not fast_forward:
        _refuse_repetition(table, branch, source)
        _refuse_operation(metadata, head, source)
    added, removed = _changes(table, source, checked=not fast_forward)
    if not fast_forward:
        _check_files(table, source, added, removed)
    plan = PickPlan(
        table=table,
        branch=branch,
        head=head,
        source=source,
        fast_forward=fast_forward,
        added=added,
        removed_files=len(removed),
    )
    if head is not None and not fast_forward:
        manifests = read_list(table.storage, metadata, head).to_pylist()
        if plan.replaces_partitions:
            index = LivePartitions(table.storage, {})
            index.refuse_rows_elsewhere(metadata, manifests, added)
        else:
            refuse_live(table.storage, metadata, manifests, added)
    return plan


def _refuse_operation(metadata: TableMetadata, head: Snapshot | None, source: Snapshot) -> None:
    """Refuse a change that depends on the files of the table for which it was made.

    Raises:
        RefusedError: only a fast-forward could apply the snapshot.
    """
    operation = ancestry.operation_of(source)
    if operation == "append":
        return
    if not _replaces_partitions(source):
        raise RefusedError(
            f"snapshot {source.snapshot_id} ({operation}) cannot be applied to another head than its parent: it is "
            "neither an append nor a replacement of partitions",
            hint="apply it before other commits, or repeat the command that made it",
        )
    parent, head_id = source.parent_snapshot_id, head.snapshot_id if head else None
    if parent is not None and not ancestry.is_ancestor(metadata, parent, head_id):
        raise RefusedError(
            f"snapshot {source.snapshot_id} replaced partitions of snapshot {parent}, which is not in the history of "
            "the branch: whether they changed since then cannot be determined",
            hint="repeat the command that made it",
        )


def _replaces_partitions(source: Snapshot) -> bool:
    is_marked = properties_of(source).get(REPLACE_PARTITIONS, "").lower() == "true"
    return is_marked and ancestry.operation_of(source) == "overwrite"


def _refuse_contained(table: Table, branch: str, source: Snapshot) -> None:
    """Refuse a change of which the branch's retained history contains a pick, or the WAP id.

    Raises:
        RefusedError: the rows of the snapshot would be added a second time.
    """
    metadata, where = table.metadata, f"branch {branch} of {table.identifier}"
    known = ancestry.snapshots_by_id(metadata)
    own, wap_id = source.snapshot_id, wap_id_of(source)
    # Picks of one change, also of a pick of it, contain the same rows.
    change = change_ids(known, source)
    for item in ancestry.ancestors(metadata, ancestry.head_id(metadata, branch)):
        if not change.isdisjoint(change_ids(known, item)):
            raise RefusedError(f"{where} contains snapshot {own} already, in {item.snapshot_id}")
        summary = properties_of(item)
        if wap_id is not None and wap_id in {summary.get(WAP_ID), summary.get(PUBLISHED_WAP_ID)}:
            raise RefusedError(f"{where} contains WAP id {wap_id} already, in {item.snapshot_id}")


def _refuse_repetition(table: Table, branch: str, source: Snapshot) -> None:
    """Refuse a change that the branch contains, or may contain, so that a new snapshot may repeat it.

    Raises:
        RefusedError: the rows of the snapshot might be added a second time.
    """
    _refuse_contained(table, branch, source)
    metadata, where = table.metadata, f"branch {branch} of {table.identifier}"
    history = list(ancestry.ancestors(metadata, ancestry.head_id(metadata, branch)))
    known = ancestry.snapshots_by_id(metadata)
    own, change = source.snapshot_id, change_ids(known, source)
    for run_id, _ in Marks(RUN_NOTES, metadata).of(source):
        if has_run(table, branch, run_id):
            raise RefusedError(f"{where} contains run {run_id} already")
    for stream, value in Marks(STREAM_NOTES, metadata).of(source):
        newest = newest_epoch(table, branch, stream)
        if newest is not None and newest.number >= value[0]:
            raise RefusedError(f"{where} contains {newest}, and snapshot {own} epoch {value[0]}")
    for query, value in Marks(QUERY_NOTES, metadata).of(source):
        last = newest_query_epoch(table, branch, query)
        if last is not None and last.number >= value[0]:
            raise RefusedError(f"{where} contains {last}, and snapshot {own} epoch {value[0]}")
    if not history or ancestry.is_first(metadata, history[-1]):
        return
    sources = list(with_sources(known, source))
    # The age of one that is not retained is not known.
    if len(change) > len(sources) or _age(sources[-1]) < _age(history[-1]):
        raise RefusedError(
            f"the change of snapshot {own} may be older than the history that {where} retains: whether it was "
            "applied before cannot be determined",
            hint="load its rows with `lake scan` and `lake ingest` if they are missing",
        )


def _age(snapshot: Snapshot) -> tuple[int, int]:
    """Return the order of commits; format version 1 has only their times."""
    number = snapshot.sequence_number or 0
    return (number, 0 if number else snapshot.timestamp_ms)


def _check_files(
    table: Table, source: Snapshot, added: Sequence[EntryTable], removed: Sequence[str]
) -> None:
    """Refuse a change whose files are not what the snapshot's summary states, or are gone.

    Raises:
        RefusedError: the same change of the head would lose rows, or add rows a second time.
        CorruptFileError: a file is missing, or the files of the snapshot's parent cannot be determined.
    """
    if _replaces_partitions(source):
        # check: replaced-whole-partitions
        require_replaced_all(table, source, added, frozenset(removed))
    elif removed:  # check: picked-rewrite
        raise RefusedError(
            f"snapshot {source.snapshot_id} is an append by its summary, but removed {len(removed)} files: their "
            "rows, which may be in the files that it added, would stay too",
            hint="apply it before other commits, or repeat the command that made it",
        )
    require_stored(table, source, added)  # check: picked-files-stored


def _changes(
    table: Table, source: Snapshot, *, checked: bool
) -> tuple[list[EntryTable], list[str]]:
    """Return the data files that a snapshot added, by spec, and the paths of those that it removed.

    Args:
        table: the table.
        source: the snapshot.
        checked: whether to refuse changes that a new snapshot with these files would not repeat.

    Raises:
        RefusedError: the snapshot also added delete files, or removed files of other partitions.
        CorruptFileError: its list names fewer files than its summary counts, or its manifests fewer than its list.
    """
    storage, metadata = table.storage, table.metadata
    listed = read_list(storage, metadata, source)
    if message := missing_added_files_message(metadata, source, listed):
        raise CorruptFileError(message)
    own = listed.filter(pc.equal(listed["added_snapshot_id"], source.snapshot_id))
    is_data = pc.equal(own["content"], DATA)
    own_data = own.filter(is_data)
    added: list[EntryTable] = []
    removed: list[str] = []
    for spec_id, found in read_manifests(storage, own_data, metadata).items():
        entries = found.filter(pc.equal(found["snapshot_id"], source.snapshot_id))
        new = entries.filter(pc.equal(entries["status"], ADDED))
        old = entries.filter(pc.equal(entries["status"], DELETED))
        removed += old["file_path"].to_pylist()
        if checked and not _partitions(old) <= _partitions(new):
            raise RefusedError(
                f"snapshot {source.snapshot_id} removed files of other partitions than those to which it added files",
                hint="repeat the command that made it",
            )
        if new.num_rows:
            added.append(EntryTable(spec_id, new))
    if checked:
        require_counted_files(source, own_data, sum(part.entries.num_rows for part in added))
        deletes = read_manifests(storage, own.filter(pc.invert(is_data)), metadata)
        for found in deletes.values():
            mine = pc.equal(found["snapshot_id"], source.snapshot_id)
            if pc.any(pc.and_(mine, pc.equal(found["status"], ADDED)), min_count=0).as_py():
                raise RefusedError(
                    f"snapshot {source.snapshot_id} added delete files, which apply to its own history only",
                    hint="repeat the command that made it",
                )
    return added, removed


def _partitions(entries: pa.Table) -> set[Any]:
    return set(partition_tuples(entries["partition"]))


def execute(session: Session, plan: PickPlan, operation_id: str, *, dry_run: bool) -> Outcome:
    """Apply the snapshot in one commit.

    Raises:
        RefusedError: another process applied it meanwhile; nothing was changed.
        CommitConflictError: the branch was changed so that the change does not apply any more; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if dry_run:
        return _outcome(plan, Status.DRY_RUN)
    source = plan.source.snapshot_id
    if plan.fast_forward:
        _fast_forward(session, plan)
        return _outcome(plan, Status.DONE, snapshot_ids=[source])
    operation: AppendFiles | ReplacePartitions = AppendFiles(added=plan.added, only_new=True)
    if plan.replaces_partitions:
        base = plan.source.parent_snapshot_id
        operation = ReplacePartitions(added=plan.added, base_snapshot_id=base)
    step = SnapshotStep(operation=operation, summary=plan.summary())

    def decide(now: Table) -> Sequence[SnapshotStep]:
        if source not in ancestry.snapshots_by_id(now.metadata):
            raise NotFoundError(f"snapshot {source} of {now.identifier} expired meanwhile")
        _refuse_repetition(now, plan.branch, plan.source)
        return (step,)

    request = CommitRequest(
        operation_id=operation_id, branch=plan.branch, updates=_require_snapshot(source)
    )
    done = commit_snapshots(session, plan.table, decide, request)
    return _outcome(plan, Status.DONE, operation_id, done.snapshot_ids)


def _require_snapshot(snapshot_id: int) -> tuple[SetSnapshotRefUpdate, RemoveSnapshotRefUpdate]:
    """Return updates that change nothing, and that a server refuses if it has no such snapshot.

    A server does not compare the rest of the metadata: without these, an expiry by another process could remove the
    snapshot and its files directly before the commit.
    """
    name = f"lake-pick-{snapshot_id}"
    return (
        SetSnapshotRefUpdate(
            ref_name=name,
            type=TAG,
            snapshot_id=snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
        RemoveSnapshotRefUpdate(ref_name=name),
    )


def _fast_forward(session: Session, plan: PickPlan) -> None:
    change = moved(plan.table.metadata, plan.branch, plan.head, plan.source)
    commit_refs(session, plan.table, [change])


def _outcome(
    plan: PickPlan,
    status: Status,
    operation_id: str | None = None,
    snapshot_ids: Sequence[int] = (),
) -> Outcome:
    facts = plan.facts()
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.head.snapshot_id if plan.head else None,
        snapshot_ids=snapshot_ids,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
    )
