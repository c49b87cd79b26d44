"""The only path for new snapshots: validate, write manifests, swap the metadata, and determine the outcome.

A commit is retried only after the catalog reported that it did not happen and the table shows no trace of
it. After any other error the outcome is unknown: the table is searched for the operation id, and if it is not
found, nothing is deleted. Source of waits and defaults: Iceberg's SnapshotProducer and TableProperties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg import exceptions as errors
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lake.core import locations as paths
from lake.core.catalogs.catalog import Table
from lake.core.catalogs.errors import first_line, locked_error, words
from lake.core.clock import Backoff
from lake.core.commit.operations import Operation, SnapshotStep
from lake.core.commit.preconditions import check_commits, require_writable
from lake.core.commit.snapshot_sequence import SnapshotSequence
from lake.core.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    StoppedError,
    TimedOutError,
)
from lake.core.interrupts import uninterrupted
from lake.core.metadata import files as metadata_files
from lake.core.metadata.commit_times import is_disordered
from lake.core.metadata.snapshot_updates import AddSnapshot
from lake.core.metadata.text import unknown_members
from lake.core.properties.table_properties import (
    COMMIT_RETRY,
    DELETE_OLD_METADATA,
    STATUS_CHECK,
)
from lake.core.properties.values import Setting
from lake.core.run_context import RunContext
from lake.core.snapshots import ancestry
from lake.core.snapshots.run_ids import (
    CARRIED_MS,
    OPERATION_ID,
    RUN_ID,
    find_on_branch,
    has_run,
    noted_runs,
)
from lake.core.storage.background_writer import WriteBehind
from lake.core.storage.file_names import unnamed

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


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries of a request, and the waits in milliseconds."""

    retries: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str], settings: Sequence[Setting[int]]) -> RetryPolicy:
        """Read the four settings of a policy, in the order of its fields.

        Raises:
            InvalidRequestError: a property has a value that is not allowed.
        """
        return cls(*(setting.of(properties) for setting in settings))

    def backoff(self, context: RunContext) -> Backoff:
        """Return the waits between the requests."""
        bounds = (self.min_wait_ms / 1000, self.max_wait_ms / 1000)
        return Backoff(*bounds, _JITTER, context.clock, context.ids)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """One request to the catalog.

    Args:
        requirements: conditions on the table.
        updates: changes of the table.
        files: files that the change makes live, or that are needed once it is committed; protected from deletion.
    """

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    files: Sequence[str] = ()


def find_summary(metadata: TableMetadata, wanted: Mapping[str, str]) -> Snapshot | None:
    """Return the newest retained snapshot whose summary contains all the given keys and values."""
    for snapshot in reversed(metadata.snapshots):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if wanted and all(summary.get(key) == value for key, value in wanted.items()):
            return snapshot
    return None


def commit_snapshot(
    context: RunContext,
    table: Table,
    operation: Operation,
    *,
    operation_id: str,
    branch: str = ancestry.MAIN,
    summary: Mapping[str, str] | None = None,
    guard: Mapping[str, str] | None = None,
    requirements: tuple[TableRequirement, ...] = (),
    updates: tuple[TableUpdate, ...] = (),
) -> Committed:
    """Commit an operation to a branch as one snapshot.

    Args:
        context: clock, ids and the register of files that may be live.
        table: the table on which the caller planned.
        operation: the changes of the table's files.
        operation_id: a UUID, new for each commit; it is part of file names and of the snapshot's summary.
        branch: an existing branch (``main`` may be empty).
        summary: additional keys for the snapshot's summary.
        guard: summary keys and values which show that an earlier run made this change; checked on every
            attempt, in the history of the same head that the swap requires.
        requirements: additional conditions, e.g. on the schema.
        updates: changes to commit together with the snapshot, e.g. a new schema.

    Raises:
        CommitConflictError: the commit did not happen; the manifests written for it were deleted.
        CommitUnknownError: it may have happened; nothing was deleted.
    """
    step = SnapshotStep(operation=operation, summary=summary or {})
    return commit_snapshots(
        context,
        table,
        lambda _: (step,),
        operation_id=operation_id,
        branch=branch,
        guard=guard,
        requirements=requirements,
        updates=updates,
    )


def commit_snapshots(
    context: RunContext,
    table: Table,
    decide: Callable[[Table], Sequence[SnapshotStep]],
    *,
    operation_id: str,
    branch: str = ancestry.MAIN,
    guard: Mapping[str, str] | None = None,
    requirements: tuple[TableRequirement, ...] = (),
    updates: tuple[TableUpdate, ...] = (),
) -> Committed:
    """Commit steps to a branch as one snapshot each, either all or none of them.

    Args:
        context: like the arguments without a description here, see `commit_snapshot`.
        table: the table on which the caller planned.
        decide: returns the remaining steps for the current table, in order; called on every attempt,
            with the same head that the swap requires. Files that were written for a step are reused if
            it returns that step again.
        operation_id: a UUID that marks all the snapshots.
        branch: an existing branch.
        guard: see `commit_snapshot`.
        requirements: additional conditions.
        updates: changes to commit together with the snapshots.

    Raises:
        CommitConflictError: the commit did not happen; the manifests written for it were deleted.
        CommitUnknownError: it may have happened; nothing was deleted.
    """
    with WriteBehind(table.storage) as storage:
        sequence = SnapshotSequence(context, storage, operation_id)
        commit = _Commit(context, decide, sequence, branch, guard or {}, requirements, updates)
        return commit.run(table)


@dataclass(slots=True)
class _Commit:
    """Prepares and sends requests until the snapshots are committed or certainly cannot be."""

    context: RunContext
    decide: Callable[[Table], Sequence[SnapshotStep]]
    sequence: SnapshotSequence
    branch: str
    guard: Mapping[str, str]
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    # The steps of the last attempt.
    steps: Sequence[SnapshotStep] = ()
    # Whether the commit may change the branch's property of run ids, and whether the last attempt does.
    notes_run_ids: bool = True
    has_run_ids: bool = False

    def run(self, table: Table) -> Committed:
        try:
            after = self._commit(table)
        except CommitUnknownError as error:
            error.operation_id = self.sequence.operation_id
            raise
        except BaseException:
            # If it was interrupted while the request was sent, the commit may have succeeded.
            owned, written = self.context.protected_files, self.sequence.written
            self._delete_unused(
                table, [path for path in written if paths.canonical(path) not in owned]
            )
            raise
        own = _snapshots_with(after.metadata, self.sequence.operation_id)
        if own:
            self._delete_unused(after, self.sequence.unused(own))
            return self._committed(after, [snapshot.snapshot_id for snapshot in own])
        earlier = self._find_committed(after.metadata)
        if earlier is None and self.steps:
            # Hidden only by a rollback and an expiry directly after the commit; its files are kept.
            return self._committed(after, self.sequence.ids_of(self.steps))
        self._delete_unused(after, self.sequence.written)
        found = (earlier.snapshot_id,) if earlier else ()
        return Committed(table=after, snapshot_ids=found, already=True)

    def _commit(self, table: Table) -> Table:
        """Commit; if the catalog forbids changes of table properties, commit without the run ids."""
        try:
            return commit_changes(self.context, table, self._prepare, self._find_committed)
        except NotAuthorisedError:
            if not self.has_run_ids:
                raise
            self.notes_run_ids = False
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
        return own or find_on_branch(metadata, self.branch, self.guard)

    def _prepare(self, table: Table) -> ChangeSet | None:
        self.steps = () if self._is_guarded(table) else self.decide(table)
        if not self.steps:
            return None
        head = None if table.creating else ancestry.branch_head(table.metadata, self.branch)
        schema_id = _schema_id(table.metadata, self.updates)
        snapshots = self.sequence.build(table, head, self.steps, schema_id)
        return self._request(table, head, snapshots)

    def _is_guarded(self, table: Table) -> bool:
        """Whether an earlier run made this change, even if its snapshot has expired."""
        if self.guard.keys() == {RUN_ID}:
            since_ms = self.context.clock.now_ms() - CARRIED_MS
            return has_run(table, self.branch, self.guard[RUN_ID], since_ms)
        return find_on_branch(table.metadata, self.branch, self.guard) is not None

    def _request(
        self, table: Table, head: Snapshot | None, snapshots: Sequence[Snapshot]
    ) -> ChangeSet:
        own = set(self.sequence.written).difference(self.sequence.unused(snapshots))
        files = (*self.sequence.paths_of(self.steps), *own)
        updates = (
            *table.creating,
            *self.updates,
            *(AddSnapshot(snapshot=snapshot) for snapshot in snapshots),
            # The branch moves to the last one: the snapshots before it were never its head.
            self._move(table.metadata, snapshots[-1].snapshot_id),
            *self._run_ids(table.metadata, snapshots),
        )
        if table.creating:
            return ChangeSet((AssertCreate(),), updates, files)
        pinned = AssertRefSnapshotId(
            ref=self.branch, snapshot_id=head.snapshot_id if head else None
        )
        same = AssertTableUUID(uuid=table.metadata.table_uuid)
        return ChangeSet((same, pinned, *self.requirements), updates, files)

    def _run_ids(
        self, metadata: TableMetadata, snapshots: Sequence[Snapshot]
    ) -> tuple[TableUpdate, ...]:
        now_ms = self.context.clock.now_ms()
        has_run_ids = (
            noted_runs(metadata, self.branch, now_ms, added=snapshots) if self.notes_run_ids else {}
        )
        self.has_run_ids = bool(has_run_ids)
        return (SetPropertiesUpdate(updates=has_run_ids),) if has_run_ids else ()

    def _move(self, metadata: TableMetadata, snapshot_id: int) -> TableUpdate:
        ref = metadata.refs.get(self.branch)
        return SetSnapshotRefUpdate(
            ref_name=self.branch,
            type="branch",
            snapshot_id=snapshot_id,
            # The branch keeps its retention settings.
            max_ref_age_ms=ref.max_ref_age_ms if ref else None,
            max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
            min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
        )

    def _delete_unused(self, table: Table, locations: list[str]) -> None:
        self.sequence.storage.give_up()
        outcome = table.storage.delete(locations)
        if outcome.failed:
            self.context.warn(f"{len(outcome.failed)} unused manifests could not be removed")


def _snapshots_with(metadata: TableMetadata, operation_id: str) -> list[Snapshot]:
    return [
        snapshot
        for snapshot in metadata.snapshots
        if snapshot.summary
        and snapshot.summary.additional_properties.get(OPERATION_ID) == operation_id
    ]


def commit_changes(
    context: RunContext,
    table: Table,
    prepare: Callable[[Table], ChangeSet | None],
    find_commit: Callable[[TableMetadata], object | None],
) -> Table:
    """Send a change until it is committed or certainly cannot be, and return the table after it.

    Args:
        context: clock, ids and the register of protected files.
        table: the table for the first attempt; it is reloaded for the later ones.
        prepare: builds the request for the current table; None means that nothing is left to do. It is
            called again after each conflict, and validates again.
        find_commit: finds this change in metadata; None if it is not there.

    Raises:
        RefusedError: see `require_writable`; or a server would drop members that lake does not know.
        CommitConflictError: the catalog refused every attempt, and the table shows no trace of the change.
        CommitUnknownError: a response is missing and no trace was found (yet).
    """
    require_writable(table)
    _warn_of_times(context, table)
    policy = RetryPolicy.of(table.properties, COMMIT_RETRY)
    started = context.clock.monotonic()
    for attempt in range(1, policy.retries + 2):
        if attempt > 1 and find_commit(table.metadata) is not None:
            return table
        # None of this may fail after the request was sent.
        check_commits(table.properties)
        try:
            request = prepare(table)
        except NotFoundError:
            # An expiry deletes the files of a head that other commits have replaced: continue with theirs.
            now = None if table.creating or attempt > policy.retries else table.refreshed()
            if now is None or now.metadata_location == table.metadata_location:
                raise
            table = now
            continue
        if request is None:
            return table
        _require_kept(table, request.updates)
        after, refusal = _send_uninterrupted(context, table, request, find_commit)
        if after is not None:
            return after
        elapsed_ms = (context.clock.monotonic() - started) * 1000
        last = attempt > policy.retries or (elapsed_ms > policy.total_ms and attempt > 1)
        if last or table.creating:
            raise CommitConflictError(
                f"the catalog refused the commit to {table.identifier} after {attempt} "
                f"{'try' if attempt == 1 else 'tries'}: {refusal}",
                hint="nothing was changed; run the command again",
            )
        policy.backoff(context).wait(attempt)
        table = table.refreshed()
    raise CommitConflictError(f"the commit to {table.identifier} was never attempted")


def _warn_of_times(context: RunContext, table: Table) -> None:
    """Warn about a table that Iceberg Java does not load, if the commit cannot correct it."""
    if not table.catalog.makes_metadata and is_disordered(table.metadata):
        context.warn(
            f"the times in the metadata of {table.identifier} go back by more than a minute: Iceberg Java does not "
            "load such a table, and only its catalog's server can correct them"
        )


def _require_kept(table: Table, updates: tuple[TableUpdate, ...]) -> None:
    """Refuse to send a server an element that lacks members of the one that it replaces.

    Raises:
        RefusedError: the table has members that lake does not know, and the change replaces them.
    """
    if table.creating or table.catalog.makes_metadata:
        return
    lost = unknown_members(table.metadata, updates)
    if lost:
        raise RefusedError(
            f"the change to {table.identifier} would drop unknown members: {', '.join(lost)[:_SHOWN]}",
            hint="make this change with the engine that wrote them",
        )


def _send_uninterrupted(
    context: RunContext,
    table: Table,
    request: ChangeSet,
    find_commit: Callable[[TableMetadata], object | None],
) -> tuple[Table | None, str]:
    """Send once, and determine the outcome before a stop can interrupt; see `_send`."""
    owned = {paths.canonical(file) for file in request.files}
    after, refusal, unknown = None, "", None
    try:
        with uninterrupted():
            context.protected_files.update(owned)
            try:
                after, refusal = _send(context, table, request, find_commit)
            except CommitUnknownError as error:
                unknown = error
            except LakeError:
                context.protected_files.difference_update(owned)
                raise
            if after is not None:
                context.interrupts.committed()
                _drop_old_metadata(context, table, after)
            elif unknown is None:
                context.protected_files.difference_update(owned)
    except (StoppedError, KeyboardInterrupt) as stop:
        if after is None and unknown is None:
            raise
        # The stop came too late for a commit that succeeded or may have: it is raised at the next checkpoint.
        context.interrupts.defer(stop)
    if unknown is not None:
        raise unknown
    return after, refusal


def _send(
    context: RunContext,
    table: Table,
    request: ChangeSet,
    find_commit: Callable[[TableMetadata], object | None],
) -> tuple[Table | None, str]:
    """Send once; return the table after it, or None and the refusal if it certainly did not happen."""
    try:
        answer = table.send(request.requirements, request.updates, context.clock)
    except LakeError as error:
        # Raised before anything changed, except when a server redirects: a proxy may redirect after it has
        # forwarded the commit.
        here = table.catalog.writes_metadata or not table.catalog.is_served
        return _confirm_refusal(
            context, table, find_commit, error, certain=Exception if here else ()
        )
    except (
        errors.CommitFailedException,
        errors.TableAlreadyExistsError,
        errors.TooManyRequestsError,
    ) as error:
        # A proxy that sends a request twice turns a success into a conflict: only the table shows which.
        after = _find_after_refusal(context, table, find_commit, error)
        return after, first_line(error)
    except (
        errors.UnauthorizedError,
        errors.ForbiddenError,
        errors.AuthorizationExpiredError,
    ) as error:
        refusal = NotAuthorisedError(f"not allowed to commit to {table.identifier}: {words(error)}")
        # If reloading is refused too, the credentials are rejected outright, so the commit did not happen.
        return _confirm_refusal(
            context, table, find_commit, refusal, error, certain=NotAuthorisedError
        )
    except errors.NoSuchTableError as error:
        raise NotFoundError(f"table {table.identifier} was dropped meanwhile") from error
    except errors.BadRequestError as error:
        return _confirm_refusal(context, table, find_commit, _not_accepted(table, error), error)
    except Exception as error:  # noqa: BLE001 - after any other error the outcome is unknown, not failed
        if locked := locked_error(error, table.catalog.database):
            return _locked_out(context, table, find_commit, locked, error)
        # An in-process catalog builds the metadata before the swap, so this error proves that nothing was
        # committed. From a server, it means an unreadable response to a commit that may have succeeded.
        is_invalid = isinstance(error, errors.ValidationError) or type(error) is ValueError
        if is_invalid and not table.catalog.is_served:
            return _confirm_refusal(context, table, find_commit, _not_accepted(table, error), error)
        return _await_visible(context, table, find_commit, error), ""
    for warning in answer.warnings:
        context.warn(warning)
    if find_commit(answer.metadata) is None:
        # For example, a proxy may have turned the request into a load of the table.
        other = BadInputError("its response does not contain the change")
        return _await_visible(context, table, find_commit, other), ""
    # The catalog confirmed the commit: if the reload fails now, only the local view of it is missing.
    return _await_visible(context, table, find_commit, None), ""


def _locked_out(
    context: RunContext,
    table: Table,
    find_commit: Callable[[TableMetadata], object | None],
    refusal: TimedOutError,
    cause: Exception,
) -> tuple[Table, str]:
    """Return the table if it shows the change nevertheless; see `_confirm_refusal`.

    Raises:
        TimedOutError: SQLite changed nothing, because another process has locked its file.
    """
    try:
        return _confirm_refusal(context, table, find_commit, refusal, cause, certain=TimedOutError)
    except TimedOutError:
        _delete_own_metadata(context, table, None)
        raise


def _not_accepted(table: Table, cause: Exception) -> BadInputError:
    return BadInputError(
        f"the catalog does not accept the commit to {table.identifier}: {first_line(cause)}"
    )


def _confirm_refusal(
    context: RunContext,
    table: Table,
    find_commit: Callable[[TableMetadata], object | None],
    refusal: LakeError,
    cause: Exception | None = None,
    *,
    certain: _Kinds = (),
) -> tuple[Table, str]:
    """Return the table if it shows the change although it was refused; see `_find_after_refusal`.

    Raises:
        LakeError: the refusal; the table does not show the change.
    """
    after = _find_after_refusal(context, table, find_commit, cause or refusal, certain=certain)
    if after is None:
        raise refusal from cause or refusal.__cause__
    return after, ""


def _find_after_refusal(
    context: RunContext,
    table: Table,
    find_commit: Callable[[TableMetadata], object | None],
    cause: BaseException,
    *,
    certain: _Kinds = (),
) -> Table | None:
    """Return the table if the change is in it, None if it certainly is not.

    Args:
        context: like the arguments without a description here, see `commit_changes`.
        table: the table for which the change was sent.
        find_commit: finds the change in metadata.
        cause: the catalog's error.
        certain: errors of the reload that confirm the refusal.

    Raises:
        CommitUnknownError: the reload failed otherwise, and no later reload showed the change.
    """
    try:
        missing = table.creating and not table.catalog.exists(table.identifier)
        now = None if missing else table.refreshed()
    except Exception as error:  # noqa: BLE001 - a failed reload says nothing about the commit
        if isinstance(error, certain):
            return None
        return _await_visible(context, table, find_commit, cause)
    if now is not None and find_commit(now.metadata) is not None:
        return now
    _delete_own_metadata(context, table, now)
    return None


def _delete_own_metadata(context: RunContext, table: Table, now: Table | None) -> None:
    """Remove the metadata file that a catalog in this process wrote for a commit that did not happen."""
    logged = {entry.metadata_file for entry in now.metadata.metadata_log} if now else set()
    live = logged | ({now.metadata_location} if now else set())
    own = [
        location
        for location in unnamed(table.catalog.written_metadata, live)
        if paths.deletable(location, table.roots)
    ]
    if table.storage.delete(own).failed:
        context.warn("an unused metadata file could not be removed")


def _await_visible(
    context: RunContext,
    table: Table,
    find_commit: Callable[[TableMetadata], object | None],
    cause: BaseException | None,
) -> Table:
    """Reload the table until it shows the change; without a cause, the catalog has confirmed it.

    Raises:
        CommitUnknownError: the change did not appear.
    """
    policy = RetryPolicy.of(table.properties, STATUS_CHECK)
    now: Table | None = None
    for attempt in range(1, policy.retries + 2):
        try:
            now = table.refreshed()
        except Exception:  # noqa: BLE001 - a failed reload says nothing about the commit
            now = None
        if now is not None and find_commit(now.metadata) is not None:
            return now
        if attempt <= policy.retries:
            policy.backoff(context).wait(attempt)
    if cause is None and now is not None:
        return now
    raise CommitUnknownError(
        f"the catalog did not confirm the commit to {table.identifier}: "
        f"{first_line(cause) if cause else 'the table could not be read afterwards'}",
        hint="it may have succeeded, so no file was removed; look for its operation id with `lake snapshots`",
    ) from cause


def _drop_old_metadata(context: RunContext, before: Table, after: Table) -> None:
    """Delete metadata files that dropped out of the log, if the table's properties request it."""
    if not DELETE_OLD_METADATA.of(before.properties) or before.creating:
        return
    logged = {entry.metadata_file for entry in after.metadata.metadata_log}
    logged.add(after.metadata_location)
    old = [
        location
        for location in unnamed(
            [entry.metadata_file for entry in before.metadata.metadata_log], logged
        )
        if metadata_files.is_metadata_name(location) and paths.deletable(location, after.roots)
    ]
    try:
        failed = len(after.storage.delete(old).failed)
    except LakeError as error:
        # The commit has succeeded regardless.
        context.warn(f"old metadata files were not removed: {error.message}")
        return
    if failed:
        context.warn("some old metadata files could not be removed")


def _schema_id(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> int:
    new = [update.schema_.schema_id for update in updates if isinstance(update, AddSchemaUpdate)]
    return new[-1] if new else metadata.current_schema_id
