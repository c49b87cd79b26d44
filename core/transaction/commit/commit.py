"""The only path for new snapshots: validate, write manifests, swap the metadata, and determine the outcome.

`lake.core.transaction.commit.attempt` sends the requests; this module builds them, and removes what is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from lake.core.base import locations
from lake.core.base.errors import (
    CommitUnknownError,
    NotAuthorisedError,
)
from lake.core.base.progress import Meter, shown
from lake.core.io.storage.background_writer import WriteBehind
from lake.core.table.catalogs.catalog import Table
from lake.core.table.metadata.snapshot_updates import AddSnapshot
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.reporting.commit_report import commit_report
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.run_ids import OPERATION_ID
from lake.core.table.snapshots.summary import engine_marks
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes, moved
from lake.core.transaction.commit.guards import Guard, noted_marks
from lake.core.transaction.commit.operations import Operation, SnapshotStep
from lake.core.transaction.commit.preconditions import refuse_consumer
from lake.core.transaction.commit.snapshot_sequence import SnapshotSequence
from lake.core.transaction.run_context import RunContext

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_SHOWN = 200
# Each wait is up to a tenth longer, as in Iceberg's Tasks.
_JITTER = (1.0, 1.1)
# Classes of errors, as `isinstance` accepts them.
_Kinds = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that succeeded.

    Args:
        table: the table after it.
        snapshot_ids: the snapshots that contain the change, in order; empty if there was nothing to do.
        steps: the steps of this call, one for each of its snapshots.
        already: True if an earlier run had made the change and this call committed nothing.
    """

    table: Table
    snapshot_ids: tuple[int, ...]
    steps: tuple[SnapshotStep, ...] = ()
    already: bool = False

    @property
    def snapshot_id(self) -> int:
        """The snapshot that contains the whole change."""
        return self.snapshot_ids[-1]


def find_summary(metadata: TableMetadata, wanted: Mapping[str, str]) -> Snapshot | None:
    """Return the newest retained snapshot whose summary contains all the given keys and values."""
    for snapshot in reversed(metadata.snapshots):
        summary = properties_of(snapshot)
        if wanted and all(summary.get(key) == value for key, value in wanted.items()):
            return snapshot
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The branch of a commit, its marks, its conditions, and what changes with its snapshots.

    Args:
        operation_id: a UUID, new for each commit; it is part of file names and of the snapshots' summaries.
        branch: an existing branch (``main`` may be empty).
        guard: what shows that an earlier run made this change; asked on every attempt, for the same head that the
            swap requires. None if the change is not made twice.
        requirements: additional conditions, e.g. on the schema.
        updates: changes to commit together with the snapshots, e.g. a new schema.
    """

    operation_id: str
    branch: str = ancestry.MAIN
    guard: Guard | None = None
    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()

    def __post_init__(self) -> None:
        refuse_consumer(self.branch)


def commit_snapshot(
    context: RunContext,
    table: Table,
    operation: Operation,
    request: CommitRequest,
    *,
    summary: Mapping[str, str] | None = None,
) -> Committed:
    """Commit an operation to a branch as one snapshot.

    Args:
        context: clock, ids and the register of files that may be live.
        table: the table on which the caller planned.
        operation: the changes of the table's files.
        request: the branch and the conditions.
        summary: additional keys for the snapshot's summary.

    Raises:
        CommitConflictError: the commit did not happen; the manifests written for it were deleted.
        CommitUnknownError: it may have happened; nothing was deleted.
    """
    step = SnapshotStep(operation=operation, summary=summary or {})
    return commit_snapshots(context, table, lambda _: (step,), request)


def commit_snapshots(
    context: RunContext,
    table: Table,
    decide: Callable[[Table], Sequence[SnapshotStep]],
    request: CommitRequest,
) -> Committed:
    """Commit steps to a branch as one snapshot each, either all or none of them.

    Args:
        context: clock, ids and the register of files that may be live.
        table: the table on which the caller planned.
        decide: returns the remaining steps for the current table, in order; called on every attempt,
            with the same head that the swap requires. Files that were written for a step are reused if
            it returns that step again.
        request: the branch and the conditions.

    Raises:
        CommitConflictError: the commit did not happen; the manifests written for it were deleted.
        CommitUnknownError: it may have happened; nothing was deleted.
    """
    with shown(context.progress, Meter("committing")), WriteBehind(table.storage) as storage:
        sequence = SnapshotSequence(context, storage, request.operation_id)
        return _Commit(context, decide, sequence, request).run(table)


@dataclass(slots=True)
class _Commit:
    """Prepares and sends requests until the snapshots are committed or certainly cannot be."""

    context: RunContext
    decide: Callable[[Table], Sequence[SnapshotStep]]
    sequence: SnapshotSequence
    request: CommitRequest
    # The steps of the last attempt.
    steps: Sequence[SnapshotStep] = ()
    # Whether the commit may change the properties that note runs and streams, and whether the last attempt does.
    may_note: bool = True
    has_notes: bool = False
    attempts: int = 0

    def run(self, table: Table) -> Committed:
        begun = self.context.clock.monotonic()
        try:
            after = self._commit(table)
        except CommitUnknownError as error:
            error.operation_id = self.sequence.operation_id  # check: manifests-of-unknown-outcome
            raise
        except BaseException:
            # If it was interrupted while the request was sent, the commit may have succeeded.
            owned, written = self.context.protected_files, self.sequence.written
            self._delete_unused(  # check: manifests-of-sent-commit
                table, [path for path in written if locations.canonical(path) not in owned]
            )
            raise
        own = _snapshots_with(after.metadata, self.sequence.operation_id)
        if own:
            self._delete_unused(after, self.sequence.unused(own))
            self._report(after, own, self.context.clock.monotonic() - begun)
            return self._committed(after, [snapshot.snapshot_id for snapshot in own])
        earlier = self._find_committed(after.metadata)
        if earlier is None and self.steps:
            # Hidden only by a rollback and an expiry directly after the commit; its files are kept.
            return self._committed(after, self.sequence.ids_of(self.steps))
        self._delete_unused(after, self.sequence.written)
        snapshot_ids = (earlier.snapshot_id,) if earlier else ()
        return Committed(table=after, snapshot_ids=snapshot_ids, already=True)

    def _commit(self, table: Table) -> Table:
        """Commit; if the catalog forbids changes of table properties, commit without the notes."""
        try:
            return commit_changes(self.context, table, self._prepare, self._find_committed)
        except NotAuthorisedError:
            if not self.has_notes:
                raise
            self.may_note = False
            after = commit_changes(self.context, table, self._prepare, self._find_committed)
            self.context.warn(
                f"the catalog does not allow lake to note run ids in the properties of {table.identifier}: a run is "
                "recognised only until its snapshot expires"
            )
            return after

    def _committed(self, table: Table, snapshot_ids: Sequence[int]) -> Committed:
        steps = self.sequence.steps_of(snapshot_ids)
        return Committed(table=table, snapshot_ids=tuple(snapshot_ids), steps=tuple(steps))

    def _find_committed(self, metadata: TableMetadata) -> Snapshot | None:
        own = find_summary(metadata, {OPERATION_ID: self.sequence.operation_id})
        guard, branch = self.request.guard, self.request.branch
        return own or (guard.find(metadata, branch) if guard else None)

    def _report(self, table: Table, own: Sequence[Snapshot], seconds: float) -> None:
        """Report the snapshots to the catalog's server, if it takes reports."""
        name = f"{table.catalog.name}.{table.identifier}"
        for snapshot in own:
            parts = (name, snapshot, seconds, self.attempts, engine_marks())
            table.catalog.report(table, partial(commit_report, *parts))

    def _prepare(self, table: Table) -> ChangeSet | None:
        self.attempts += 1
        self.steps = () if self._is_guarded(table) else self.decide(table)  # check: run-id-guard
        if not self.steps:
            return None
        head = None if table.creating else ancestry.branch_head(table.metadata, self.request.branch)
        schema_id = _schema_id(table.metadata, self.request.updates)
        snapshots = self.sequence.build(table, head, self.steps, schema_id)
        return self._request(table, head, snapshots)

    def _is_guarded(self, table: Table) -> bool:
        """Whether an earlier run made this change, even if its snapshot has expired."""
        guard, now_ms = self.request.guard, self.context.clock.now_ms()
        return guard is not None and guard.is_held(table, self.request.branch, now_ms)

    def _request(
        self, table: Table, head: Snapshot | None, snapshots: Sequence[Snapshot]
    ) -> ChangeSet:
        own = set(self.sequence.written).difference(self.sequence.unused(snapshots))
        files = (*self.sequence.paths_of(self.steps), *own)
        updates = (
            *table.creating,
            *self.request.updates,
            *(AddSnapshot(snapshot=snapshot) for snapshot in snapshots),
            # The branch moves to the last one: the snapshots before it were never its head.
            moved(table.metadata, self.request.branch, snapshots[-1].snapshot_id),
            *self._notes(table.metadata, snapshots),
        )
        if table.creating:
            return ChangeSet((AssertCreate(),), updates, files)
        pinned = AssertRefSnapshotId(
            ref=self.request.branch, snapshot_id=head.snapshot_id if head else None
        )
        same = AssertTableUUID(uuid=table.metadata.table_uuid)
        # check: pinned-head, same-table
        return ChangeSet((same, pinned, *self.request.requirements), updates, files)

    def _notes(
        self, metadata: TableMetadata, snapshots: Sequence[Snapshot]
    ) -> tuple[TableUpdate, ...]:
        now_ms = self.context.clock.now_ms()
        notes: dict[str, str] = {}
        if self.may_note:
            notes = noted_marks(metadata, self.request.branch, now_ms, snapshots)
        self.has_notes = bool(notes)  # check: run-ids-of-expired
        return (SetPropertiesUpdate(updates=notes),) if notes else ()

    def _delete_unused(self, table: Table, unused: list[str]) -> None:
        self.sequence.storage.give_up()
        outcome = table.storage.delete(unused)
        if outcome.failed:
            self.context.warn(f"{len(outcome.failed)} unused manifests could not be removed")


def _snapshots_with(metadata: TableMetadata, operation_id: str) -> list[Snapshot]:
    return [
        snapshot
        for snapshot in metadata.snapshots
        if properties_of(snapshot).get(OPERATION_ID) == operation_id
    ]


def _schema_id(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> int:
    new = [update.schema_.schema_id for update in updates if isinstance(update, AddSchemaUpdate)]
    return new[-1] if new else metadata.current_schema_id
