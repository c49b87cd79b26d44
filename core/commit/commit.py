"""The one door for new snapshots: validate, write manifests, swap, and know what became of it.

A commit is tried again only after the catalog said that it did not happen and the table shows no trace of
it. Any other error leaves the outcome open: the table is searched for the operation id, and if that is not
found nothing is removed. Source of waits and defaults: Iceberg's SnapshotProducer and TableProperties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core import locations as paths
from lake.core.avro.codecs import codec_of_manifests
from lake.core.catalogs.catalog import Table
from lake.core.catalogs.errors import first_line, locked_error
from lake.core.commit.operations import Operation, Step
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
from lake.core.metadata.format_upgrades import refuse_encrypted
from lake.core.metadata.text import unknown_members
from lake.core.properties.table_properties import (
    COMMIT_RETRY,
    COMMITTING,
    DELETE_OLD_METADATA,
    STATUS_CHECK,
    check,
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
    from pyiceberg.table.update import TableRequirement, TableUpdate

_SHOWN = 200
# Of errors, as `isinstance` takes them.
_Kinds = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that landed.

    Args:
        table: the table after it.
        snapshot_ids: the snapshots that hold the change, in order; none when nothing was left to do.
        steps: what was done for each of them now.
        already: True when an earlier run had made the change and nothing was committed now.
    """

    table: Table
    snapshot_ids: tuple[int, ...]
    steps: tuple[Step, ...] = ()
    already: bool = False

    @property
    def snapshot_id(self) -> int:
        """The snapshot that holds the whole change."""
        return self.snapshot_ids[-1]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is repeated, and the waits in milliseconds."""

    retries: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str], settings: Sequence[Setting[int]]) -> RetryPolicy:
        """Read the four settings of a policy, in the order of its parts.

        Raises:
            InvalidRequestError: a property has a value that is not allowed.
        """
        return cls(*(setting.of(properties) for setting in settings))

    def wait_seconds(self, attempt: int, jitter: float) -> float:
        """Return the wait after the ``attempt``-th failure (from 1); ``jitter`` in [0, 1)."""
        base = min(self.min_wait_ms * 2 ** min(attempt - 1, 32), self.max_wait_ms)
        return float(base * (1 + 0.1 * jitter) / 1000)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What one request asks of the catalog.

    Args:
        requirements: what must hold of the table.
        updates: what then changes.
        files: what it makes live, or what is needed once it has landed: owned while that is possible.
    """

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    files: Sequence[str] = ()


def find_summary(metadata: TableMetadata, wanted: Mapping[str, str]) -> Snapshot | None:
    """Return the newest retained snapshot whose summary holds all the given keys and values."""
    for snapshot in reversed(metadata.snapshots):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if wanted and all(summary.get(key) == value for key, value in wanted.items()):
            return snapshot
    return None


def check_commits(properties: Mapping[str, str]) -> None:
    """Check the properties that commits depend on.

    Raises:
        InvalidRequestError: a property has a value that is not allowed.
    """
    check(properties, COMMITTING)
    codec_of_manifests(properties)


def require_writable(table: Table) -> None:
    """Refuse tables that lake cannot commit to, before anything is written for them.

    Raises:
        RefusedError: the table is encrypted, or its catalog takes no commits.
        InvalidRequestError: a property of the table that commits depend on has a value that is not allowed.
    """
    check_commits(table.properties)
    table.catalog.refuse_commits(table.identifier, None if table.creating else table.metadata)
    refuse_encrypted(table.metadata, table.identifier)


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
        table: as the caller planned on it.
        operation: what to do.
        operation_id: a UUID, new for each commit; names files and marks the snapshot.
        branch: an existing branch (``main`` may be empty).
        summary: more keys for the snapshot's summary.
        guard: summary keys and values that mean an earlier run made this change; looked for on every
            attempt, in the history of the very head that the swap requires.
        requirements: more conditions, e.g. on the schema.
        updates: changes that must land with the snapshot, e.g. a new schema.

    Raises:
        CommitConflictError: it did not happen; manifests written for it are gone again.
        CommitUnknownError: it may have happened; nothing was removed.
    """
    step = Step(operation=operation, summary=summary or {})
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
    decide: Callable[[Table], Sequence[Step]],
    *,
    operation_id: str,
    branch: str = ancestry.MAIN,
    guard: Mapping[str, str] | None = None,
    requirements: tuple[TableRequirement, ...] = (),
    updates: tuple[TableUpdate, ...] = (),
) -> Committed:
    """Commit steps to a branch as one snapshot each, all or none of them.

    Args:
        context: see `commit_snapshot`, also for what is not told here.
        table: as the caller planned on it.
        decide: returns the steps still to do on a table as it is now, first to last; asked on every attempt,
            with the very head that the swap requires. What was written for a step that it returns again is
            used again.
        operation_id: marks all the snapshots.
        branch: an existing branch.
        guard: see `commit_snapshot`.
        requirements: more conditions.
        updates: changes that must land with the snapshots.

    Raises:
        CommitConflictError: nothing happened; manifests written for it are gone again.
        CommitUnknownError: it may have happened; nothing was removed.
    """
    with WriteBehind(table.storage) as storage:
        chain = SnapshotSequence(context, storage, operation_id)
        commit = _Commit(context, decide, chain, branch, guard or {}, requirements, updates)
        return commit.run(table)


@dataclass(slots=True)
class _Commit:
    """Asks, builds and sends until the snapshots landed or certainly cannot."""

    context: RunContext
    decide: Callable[[Table], Sequence[Step]]
    chain: SnapshotSequence
    branch: str
    guard: Mapping[str, str]
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    # The steps of the last attempt.
    steps: Sequence[Step] = ()
    # Whether the branch's property of run ids may change with the commit, and does in the last attempt.
    notes: bool = True
    noted: bool = False

    def run(self, table: Table) -> Committed:
        try:
            landed = self._sent(table)
        except CommitUnknownError as error:
            error.operation_id = self.chain.operation_id
            raise
        except BaseException:
            # Broken off while it was sent, the commit may have landed.
            owned, written = self.context.protected_files, self.chain.written
            self._forget(table, [one for one in written if paths.canonical(one) not in owned])
            raise
        own = _marked(landed.metadata, self.chain.operation_id)
        if own:
            self._forget(landed, self.chain.unused(own))
            return self._committed(landed, [snapshot.snapshot_id for snapshot in own])
        earlier = self._landed(landed.metadata)
        if earlier is None and self.steps:
            # Only a rollback and expiry in the moment after could hide it; its files stay.
            return self._committed(landed, self.chain.ids_of(self.steps))
        self._forget(landed, self.chain.written)
        found = (earlier.snapshot_id,) if earlier else ()
        return Committed(table=landed, snapshot_ids=found, already=True)

    def _sent(self, table: Table) -> Table:
        """Commit; where the catalog forbids the change of table properties, without noting the run ids."""
        try:
            return commit_changes(self.context, table, self._prepare, self._landed)
        except NotAuthorisedError:
            if not self.noted:
                raise
            self.notes = False
            after = commit_changes(self.context, table, self._prepare, self._landed)
            self.context.warn(
                f"the catalog does not let {table.identifier} note run ids in its properties: they count until "
                "their snapshots expire"
            )
            return after

    def _committed(self, table: Table, snapshot_ids: Sequence[int]) -> Committed:
        steps = self.chain.steps_of(snapshot_ids)
        return Committed(table=table, snapshot_ids=tuple(snapshot_ids), steps=tuple(steps))

    def _landed(self, metadata: TableMetadata) -> Snapshot | None:
        own = find_summary(metadata, {OPERATION_ID: self.chain.operation_id})
        return own or find_on_branch(metadata, self.branch, self.guard)

    def _prepare(self, table: Table) -> ChangeSet | None:
        self.steps = () if self._is_guarded(table) else self.decide(table)
        if not self.steps:
            return None
        head = None if table.creating else ancestry.branch_head(table.metadata, self.branch)
        schema_id = _schema_id(table.metadata, self.updates)
        snapshots = self.chain.build(table, head, self.steps, schema_id)
        return self._request(table, head, snapshots)

    def _is_guarded(self, table: Table) -> bool:
        """Whether an earlier run made this change, though its snapshot may have expired since."""
        if self.guard.keys() == {RUN_ID}:
            since_ms = self.context.clock.now_ms() - CARRIED_MS
            return has_run(table, self.branch, self.guard[RUN_ID], since_ms)
        return find_on_branch(table.metadata, self.branch, self.guard) is not None

    def _request(
        self, table: Table, head: Snapshot | None, snapshots: Sequence[Snapshot]
    ) -> ChangeSet:
        from pyiceberg.table.update import (  # noqa: PLC0415
            AssertCreate,
            AssertRefSnapshotId,
            AssertTableUUID,
        )

        from lake.core.metadata.snapshot_updates import AddSnapshot  # noqa: PLC0415

        own = set(self.chain.written).difference(self.chain.unused(snapshots))
        files = (*self.chain.paths_of(self.steps), *own)
        updates = (
            *table.creating,
            *self.updates,
            *(AddSnapshot(snapshot=snapshot) for snapshot in snapshots),
            # The branch goes where all of them are: none of those before was ever its head.
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
        from pyiceberg.table.update import SetPropertiesUpdate  # noqa: PLC0415

        now_ms = self.context.clock.now_ms()
        noted = noted_runs(metadata, self.branch, now_ms, added=snapshots) if self.notes else {}
        self.noted = bool(noted)
        return (SetPropertiesUpdate(updates=noted),) if noted else ()

    def _move(self, metadata: TableMetadata, snapshot_id: int) -> TableUpdate:
        from pyiceberg.table.update import SetSnapshotRefUpdate  # noqa: PLC0415

        ref = metadata.refs.get(self.branch)
        return SetSnapshotRefUpdate(
            ref_name=self.branch,
            type="branch",
            snapshot_id=snapshot_id,
            # The branch keeps its own retention.
            max_ref_age_ms=ref.max_ref_age_ms if ref else None,
            max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
            min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
        )

    def _forget(self, table: Table, locations: list[str]) -> None:
        self.chain.storage.give_up()
        outcome = table.storage.delete(locations)
        if outcome.failed:
            self.context.warn(f"{len(outcome.failed)} unused manifests could not be removed")


def _marked(metadata: TableMetadata, operation_id: str) -> list[Snapshot]:
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
    landed: Callable[[TableMetadata], object | None],
) -> Table:
    """Send a change until it lands or certainly cannot, and return the table after it.

    Args:
        context: clock, ids and the register of owned files.
        table: where to start; later attempts load it again.
        prepare: makes the request for a table as it is now; None means nothing is left to do. It is
            called again after each conflict and validates afresh.
        landed: finds the trace of this very change in metadata.

    Raises:
        RefusedError: as `require_writable`, or a server would drop what lake does not know.
        CommitConflictError: the catalog refused every attempt, and no trace of it is in the table.
        CommitUnknownError: an answer is missing and no trace was found (yet).
    """
    require_writable(table)
    _warn_of_times(context, table)
    policy = RetryPolicy.of(table.properties, COMMIT_RETRY)
    started = context.clock.monotonic()
    for attempt in range(1, policy.retries + 2):
        if attempt > 1 and landed(table.metadata) is not None:
            return table
        # Nothing of this may fail once the request is sent.
        check_commits(table.properties)
        try:
            request = prepare(table)
        except NotFoundError:
            # An expiry takes the files of a head that others have moved on from: look at theirs.
            now = None if table.creating or attempt > policy.retries else table.refreshed()
            if now is None or now.metadata_location == table.metadata_location:
                raise
            table = now
            continue
        if request is None:
            return table
        _require_kept(table, request.updates)
        after, refusal = _sent(context, table, request, landed)
        if after is not None:
            return after
        elapsed_ms = (context.clock.monotonic() - started) * 1000
        last = attempt > policy.retries or (elapsed_ms > policy.total_ms and attempt > 1)
        if last or table.creating:
            raise CommitConflictError(
                f"the catalog refused the commit to {table.identifier}, {attempt} "
                f"{'try' if attempt == 1 else 'tries'}: {refusal}",
                hint="nothing was changed; run the command again",
            )
        context.clock.sleep(policy.wait_seconds(attempt, context.ids.jitter()))
        table = table.refreshed()
    raise CommitConflictError(f"the commit to {table.identifier} was never tried")


def _warn_of_times(context: RunContext, table: Table) -> None:
    """Warn of a table that Iceberg Java does not load, where the commit does not mend it."""
    if not table.catalog.makes_metadata and is_disordered(table.metadata):
        context.warn(
            f"the times in the metadata of {table.identifier} go back by more than a minute: Iceberg Java does not "
            "load such a table, and only its catalog's server can correct them"
        )


def _require_kept(table: Table, updates: tuple[TableUpdate, ...]) -> None:
    """Refuse to send a server anything in place of what it gave, with less in it.

    Raises:
        RefusedError: the table has members that lake does not know, where the change replaces them.
    """
    if table.creating or table.catalog.makes_metadata:
        return
    lost = unknown_members(table.metadata, updates)
    if lost:
        raise RefusedError(
            f"the change to {table.identifier} would drop what lake does not know: {', '.join(lost)[:_SHOWN]}",
            hint="make the change with the engine that wrote them",
        )


def _sent(
    context: RunContext,
    table: Table,
    request: ChangeSet,
    landed: Callable[[TableMetadata], object | None],
) -> tuple[Table | None, str]:
    """Send once, and know what became of it before a stop breaks in; see `_send`."""
    owned = {paths.canonical(file) for file in request.files}
    after, refusal, unknown = None, "", None
    try:
        with uninterrupted():
            context.protected_files.update(owned)
            try:
                after, refusal = _send(context, table, request, landed)
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
        # Too late for a commit that landed, or may have: what is left to do heeds it.
        context.interrupts.defer(stop)
    if unknown is not None:
        raise unknown
    return after, refusal


def _send(
    context: RunContext,
    table: Table,
    request: ChangeSet,
    landed: Callable[[TableMetadata], object | None],
) -> tuple[Table | None, str]:
    """Send once; return the table after it, or None and the refusal when it certainly did not happen."""
    from pyiceberg import exceptions as theirs  # noqa: PLC0415

    try:
        answer = table.send(request.requirements, request.updates, context.clock)
    except LakeError as error:
        # Raised before anything is changed, but for a server's word to go on elsewhere: who says so may stand
        # behind what did it.
        here = table.catalog.writes_metadata or not table.catalog.is_served
        return _refused(context, table, landed, error, certain=Exception if here else ())
    except (
        theirs.CommitFailedException,
        theirs.TableAlreadyExistsError,
        theirs.TooManyRequestsError,
    ) as error:
        # A proxy that sends twice turns a success into a conflict: only the table knows.
        after = _look(context, table, landed, error)
        return after, first_line(error)
    except (
        theirs.UnauthorizedError,
        theirs.ForbiddenError,
        theirs.AuthorizationExpiredError,
    ) as error:
        refusal = NotAuthorisedError(f"not allowed to commit to {table.identifier}")
        # Who may not look either was sent away altogether.
        return _refused(context, table, landed, refusal, error, certain=NotAuthorisedError)
    except theirs.NoSuchTableError as error:
        raise NotFoundError(f"table {table.identifier} was dropped meanwhile") from error
    except theirs.BadRequestError as error:
        return _refused(context, table, landed, _not_accepted(table, error), error)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the outcome is open, not failed
        if held := locked_error(error, table.catalog.database):
            return _locked_out(context, table, landed, held, error)
        # A catalog in this process makes the new metadata before it swaps: what it cannot make, it has not. Of a
        # server it is the answer that cannot be understood, to a commit that landed.
        unmade = isinstance(error, theirs.ValidationError) or type(error) is ValueError
        if unmade and not table.catalog.is_served:
            return _refused(context, table, landed, _not_accepted(table, error), error)
        return _settle(context, table, landed, error), ""
    for warning in answer.warnings:
        context.warn(warning)
    if landed(answer.metadata) is None:
        # Such as the table that something in between got, where it made a question of the request.
        other = BadInputError("its answer does not show the change")
        return _settle(context, table, landed, other), ""
    # The catalog's word is the commit; a reload that fails now leaves only our view of it open.
    return _settle(context, table, landed, None), ""


def _locked_out(
    context: RunContext,
    table: Table,
    landed: Callable[[TableMetadata], object | None],
    refusal: TimedOutError,
    cause: Exception,
) -> tuple[Table, str]:
    """Return the table where it shows the change all the same; see `_refused`.

    Raises:
        TimedOutError: SQLite changed nothing, because another process holds its file.
    """
    try:
        return _refused(context, table, landed, refusal, cause, certain=TimedOutError)
    except TimedOutError:
        _forget_metadata(context, table, None)
        raise


def _not_accepted(table: Table, cause: Exception) -> BadInputError:
    return BadInputError(
        f"the catalog does not accept the commit to {table.identifier}: {first_line(cause)}"
    )


def _refused(
    context: RunContext,
    table: Table,
    landed: Callable[[TableMetadata], object | None],
    refusal: LakeError,
    cause: Exception | None = None,
    *,
    certain: _Kinds = (),
) -> tuple[Table, str]:
    """Return the table where it shows the change that was refused; see `_look`.

    Raises:
        LakeError: the refusal; it does not show it.
    """
    after = _look(context, table, landed, cause or refusal, certain=certain)
    if after is None:
        raise refusal from cause or refusal.__cause__
    return after, ""


def _look(
    context: RunContext,
    table: Table,
    landed: Callable[[TableMetadata], object | None],
    cause: BaseException,
    *,
    certain: _Kinds = (),
) -> Table | None:
    """Return the table if the change is in it, None if it certainly is not.

    Args:
        context: see `commit_changes`, also for what is not told here.
        table: as the change was sent for it.
        landed: finds the change's trace.
        cause: what the catalog said.
        certain: failures of the look that leave no doubt of what it said.

    Raises:
        CommitUnknownError: the look failed otherwise, and none after it showed the change.
    """
    try:
        missing = table.creating and not table.catalog.exists(table.identifier)
        now = None if missing else table.refreshed()
    except Exception as error:  # noqa: BLE001 - that the look failed tells nothing of the commit
        if isinstance(error, certain):
            return None
        return _settle(context, table, landed, cause)
    if now is not None and landed(now.metadata) is not None:
        return now
    _forget_metadata(context, table, now)
    return None


def _forget_metadata(context: RunContext, table: Table, now: Table | None) -> None:
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


def _settle(
    context: RunContext,
    table: Table,
    landed: Callable[[TableMetadata], object | None],
    cause: BaseException | None,
) -> Table:
    """Look for the change until it shows; without a cause the catalog has confirmed it.

    Raises:
        CommitUnknownError: it did not show.
    """
    policy = RetryPolicy.of(table.properties, STATUS_CHECK)
    now: Table | None = None
    for attempt in range(1, policy.retries + 2):
        try:
            now = table.refreshed()
        except Exception:  # noqa: BLE001 - that the look failed tells nothing of the commit
            now = None
        if now is not None and landed(now.metadata) is not None:
            return now
        if attempt <= policy.retries:
            context.clock.sleep(policy.wait_seconds(attempt, context.ids.jitter()))
    if cause is None and now is not None:
        return now
    raise CommitUnknownError(
        f"the catalog did not confirm the commit to {table.identifier}: "
        f"{first_line(cause) if cause else 'the table could not be read afterwards'}",
        hint="it may have landed: no file was removed; `lake snapshots` shows whether its operation id is there",
    ) from cause


def _drop_old_metadata(context: RunContext, before: Table, after: Table) -> None:
    """Remove metadata files that fell out of the log, where the table's properties ask for it."""
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
        left = len(after.storage.delete(old).failed)
    except LakeError as error:
        # The commit has landed all the same.
        context.warn(f"old metadata files were not removed: {error.message}")
        return
    if left:
        context.warn("some old metadata files could not be removed")


def _schema_id(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> int:
    from pyiceberg.table.update import AddSchemaUpdate  # noqa: PLC0415

    new = [update.schema_.schema_id for update in updates if isinstance(update, AddSchemaUpdate)]
    return new[-1] if new else metadata.current_schema_id
