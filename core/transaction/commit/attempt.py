"""Send a change to the catalog until it is committed or certainly cannot be, and determine the outcome.

A change is sent again only after the catalog reported that it did not happen and the table shows no trace of it.
After any other error the outcome is unknown: the table is searched for the change, and if it is not found, nothing
is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg import exceptions as errors
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lake.core.base import locations
from lake.core.base.clock import Backoff
from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    StoppedError,
)
from lake.core.base.interrupts import uninterrupted
from lake.core.io.storage.file_names import unnamed
from lake.core.spec.properties.table_properties import (
    COMMIT_RETRY,
    DELETE_OLD_METADATA,
    GC_ENABLED,
    STATUS_CHECK,
)
from lake.core.spec.properties.values import Setting
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.errors import first_line, unwritten_error, words
from lake.core.table.metadata import files as metadata_files
from lake.core.table.metadata.commit_times import is_disordered
from lake.core.table.metadata.text import unknown_members
from lake.core.table.snapshots.ancestry import (
    MAIN,
    has_every_snapshot_since,
    head_id,
    moves_of_main,
)
from lake.core.transaction.commit.preconditions import check_commits, require_writable
from lake.core.transaction.run_context import RunContext

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_SHOWN = 200
# Classes of errors, as `isinstance` accepts them.
_ErrorClasses = type[Exception] | tuple[type[Exception], ...]
# Each wait is up to a tenth longer, as in Iceberg's Tasks.
_JITTER = (1.0, 1.1)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries of a request, and the waits in milliseconds.

    Source: Iceberg's Tasks, SnapshotProducer and TableProperties.
    """

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

    @property
    def added(self) -> frozenset[int]:
        """The ids of the snapshots that this change adds."""
        return frozenset(
            item.snapshot.snapshot_id
            for item in self.updates
            if isinstance(item, AddSnapshotUpdate)
        )

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether metadata contains a snapshot that this change adds."""
        added = self.added
        return any(item.snapshot_id in added for item in metadata.snapshots)


def moved(metadata: TableMetadata, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that moves a branch to a snapshot; the branch keeps its retention settings."""
    ref = metadata.refs.get(branch)
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type="branch",
        snapshot_id=snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
    )


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
    refused: _Attempt | None = None
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
        except CommitConflictError:
            if refused is not None and refused.was_made(table):  # check: refused-and-replaced
                return table
            raise
        if request is None:
            return table
        _require_kept(table, request.updates)
        sent = _Attempt(context, table, find_commit, request)
        after, refusal = sent.send_uninterrupted()
        if after is not None:
            return after
        # What the table contained since the first one includes what it contained since the others.
        refused = refused or sent
        elapsed_ms = (context.clock.monotonic() - started) * 1000
        is_last = attempt > policy.retries or (elapsed_ms > policy.total_ms and attempt > 1)
        if is_last or table.creating:
            raise CommitConflictError(
                f"the catalog refused the commit to {table.identifier} after {attempt} "
                f"{'try' if attempt == 1 else 'tries'}: {refusal}",
                hint="nothing was changed; run the command again",
            )
        policy.backoff(context).wait(attempt)
        context.retried()
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


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a change, whose outcome is committed, refused or unknown.

    Args:
        context: clock, ids and the register of protected files.
        table: the table for which the change was prepared.
        find_commit: finds the change in metadata; None if it is not there.
        request: the change.
    """

    context: RunContext
    table: Table
    find_commit: Callable[[TableMetadata], object | None]
    request: ChangeSet

    def send_uninterrupted(self) -> tuple[Table | None, str]:
        """Send once, and determine the outcome before a stop can interrupt; see `_send`."""
        context, request = self.context, self.request
        owned = {locations.canonical(file) for file in request.files}
        after, refusal, unknown = None, "", None
        try:
            with uninterrupted():
                context.protected_files.update(owned)  # check: files-of-unknown-outcome
                try:
                    after, refusal = self._send()
                except CommitUnknownError as error:
                    unknown = error
                except LakeError:
                    context.protected_files.difference_update(owned)
                    raise
                if after is not None:
                    if refusal and self._is_of_another(after.metadata):
                        # It has files of its own.
                        context.protected_files.difference_update(owned)
                    context.interrupts.committed()
                    _drop_old_metadata(context, self.table, after)
                elif unknown is None:
                    context.protected_files.difference_update(owned)
            if after is not None:
                context.interrupts.hold()
        except (StoppedError, KeyboardInterrupt) as stop:
            if after is None and unknown is None:  # check: stop-after-commit
                raise
            # The stop came too late for a commit that succeeded or may have: it is raised at the next checkpoint.
            context.interrupts.defer(stop)
        if unknown is not None:
            raise unknown
        return after, refusal

    def _is_of_another(self, metadata: TableMetadata) -> bool:
        """Whether metadata contains the change, made by another process."""
        return not self.request.is_in(metadata) and self.find_commit(metadata) is not None

    def _send(self) -> tuple[Table | None, str]:
        """Send once; return the table after it, or None and the refusal if it certainly did not happen."""
        table, request = self.table, self.request
        try:
            response = table.send(request.requirements, request.updates, self.context.clock)
        except LakeError as error:
            # Raised before anything changed, except when a server redirects: a proxy may redirect after it has
            # forwarded the commit.
            is_local = table.catalog.writes_metadata or not table.catalog.is_served
            return self._confirm_refusal(error, certain=Exception if is_local else ())
        except (
            errors.CommitFailedException,
            errors.TableAlreadyExistsError,
            errors.TooManyRequestsError,
        ) as error:
            # A proxy that sends a request twice turns a success into a conflict: only the table shows which.
            return self._find_after_refusal(error), first_line(error)  # check: reload-after-refusal
        except (
            errors.UnauthorizedError,
            errors.ForbiddenError,
            errors.AuthorizationExpiredError,
        ) as error:
            refusal = NotAuthorisedError(
                f"not allowed to commit to {table.identifier}: {words(error)}"
            )
            # If reloading is refused too, the credentials are rejected outright, so the commit did not happen.
            return self._confirm_refusal(refusal, error, certain=NotAuthorisedError)
        except errors.NoSuchTableError as error:
            raise NotFoundError(f"table {table.identifier} was dropped meanwhile") from error
        except errors.BadRequestError as error:
            return self._confirm_rejection(error)
        except Exception as error:  # noqa: BLE001 - after any other error the outcome is unknown, not failed
            if refused := unwritten_error(error, table.catalog.database):
                return self._not_written(refused, error)
            # A catalog that builds the metadata in this process writes it before the swap, so this error proves that
            # nothing was committed. From a server, it means an unreadable response to a commit that may have
            # succeeded.
            is_invalid = isinstance(error, errors.ValidationError) or type(error) is ValueError
            if is_invalid and self._is_local():
                return self._confirm_rejection(error)
            return self._await_visible(error), ""  # check: unknown-outcome
        for warning in response.warnings:
            self.context.warn(warning)
        if self.find_commit(response.metadata) is None:
            # For example, a proxy may have turned the request into a load of the table.
            other = BadInputError("its response does not contain the change")
            return self._await_visible(other), ""
        # The catalog confirmed the commit: if the reload fails now, only the local view of it is missing.
        return self._await_visible(None, response.metadata), ""

    def _is_local(self) -> bool:
        """Whether the catalog's error was raised in this process, so that no server can have made the change."""
        catalog = self.table.catalog
        is_unsent = catalog.writes_metadata and not catalog.written_metadata
        return is_unsent or not catalog.is_served

    def _not_written(self, refusal: LakeError, cause: Exception) -> tuple[Table, str]:
        """Return the table if it shows the change nevertheless; see `_confirm_refusal`.

        Raises:
            LakeError: SQLite changed nothing, because its file is locked or may only be read.
        """
        try:
            return self._confirm_refusal(refusal, cause, certain=type(refusal))
        except LakeError as error:
            if error is refusal:
                self._delete_own_metadata(None)
            raise

    def _confirm_rejection(self, error: Exception) -> tuple[Table | None, str]:
        """Return the table if it shows the change, or None if others changed it meanwhile.

        The change may fit the table no more, for example because a snapshot has expired. The next attempt finds out.

        Raises:
            BadInputError: the catalog does not accept the change to this table.
        """
        table = self.table
        after = self._find_after_refusal(error)
        if after is None:
            try:
                has_moved = table.refreshed().metadata_location != table.metadata_location
            except LakeError:
                has_moved = False
            if not has_moved:
                raise _not_accepted(table, error) from error
        return after, first_line(error)

    def _confirm_refusal(
        self, refusal: LakeError, cause: Exception | None = None, *, certain: _ErrorClasses = ()
    ) -> tuple[Table, str]:
        """Return the table if it shows the change although it was refused; see `_find_after_refusal`.

        Raises:
            LakeError: the refusal; the table does not show the change.
        """
        after = self._find_after_refusal(cause or refusal, certain=certain)
        if after is None:
            raise refusal from cause or refusal.__cause__
        return after, ""

    def _find_after_refusal(
        self, cause: BaseException, *, certain: _ErrorClasses = ()
    ) -> Table | None:
        """Return the table if the change is or was in it, None if it certainly never was.

        Args:
            cause: the catalog's error.
            certain: errors of the reload that confirm the refusal.

        Raises:
            CommitUnknownError: the reload failed otherwise, and no later reload showed the change; or the change may
                have been in the table until an expiry removed its snapshots.
        """
        table = self.table
        try:
            is_missing = table.creating and not table.catalog.exists(table.identifier)
            now = None if is_missing else table.refreshed()
        except Exception as error:  # noqa: BLE001 - a failed reload says nothing about the commit
            if isinstance(error, NotFoundError) and self._is_local():  # check: refusal-by-server
                # The table was dropped or renamed. Registered from this file, it would have the change.
                self._delete_own_metadata(None)  # check: metadata-of-refused-commit
                return None
            if isinstance(error, certain):
                return None
            return self._await_visible(cause)
        if now is not None and self.find_commit(now.metadata) is not None:
            return now
        if now is not None and certain is not Exception:
            try:
                if self._was_in(now):  # check: refused-and-expired
                    return now
            except LakeError as error:
                raise self._unknown(cause) from error
        self._delete_own_metadata(now)
        return None

    def _was_in(self, now: Table) -> bool:
        """Whether the table contained the change's snapshots, which an expiry removed.

        If snapshots were removed, the metadata files of the commits since the attempt show which.

        Raises:
            LakeError: the log does not name all of them any more, or one of them cannot be read.
        """
        before = self.table
        if not self.request.added:
            return False
        if before.creating:
            return now.metadata.table_uuid == before.metadata.table_uuid
        if has_every_snapshot_since(before.metadata, now.metadata):
            return False
        return any(map(self.request.is_in, self._replaced_since(now)))

    def was_made(self, now: Table) -> bool:
        """Whether the table contained the change until others replaced it; False if the change adds snapshots.

        Raises:
            CommitUnknownError: the log does not name all commits since the attempt, or one cannot be read.
        """
        if self.request.added:
            return False
        try:
            return any(self.find_commit(item) is not None for item in self._replaced_since(now))
        except LakeError as error:
            if self._has_moved_main(now):
                return True
            raise self._unknown(error) from error

    def _has_moved_main(self, now: Table) -> bool:
        """Whether main was moved as the change only moves it, by this process or for the same purpose by another.

        The log of main may reach further back than that of the metadata files. Other refs and properties have none.
        """
        before, updates = self.table.metadata, self.request.updates
        return any(
            start == head_id(before, MAIN) and updates == (moved(before, MAIN, end),)
            for start, end in moves_of_main(before, now.metadata)
        )

    def _replaced_since(self, now: Table) -> Iterator[TableMetadata]:
        """Yield the metadata of the commits since the attempt, without the current metadata.

        Raises:
            LakeError: the log does not name all of them any more, or one of them cannot be read.
        """
        begin, files = self.table.metadata_location, now.logged_files
        # Writers spell locations in several ways.
        names = [locations.folded(name) for name in files]
        if locations.folded(begin) not in names:
            raise CorruptFileError(f"the log does not name {begin}")
        for name in files[names.index(locations.folded(begin)) + 1 : -1]:
            yield metadata_files.read_metadata(now.storage, name)

    def _delete_own_metadata(self, now: Table | None) -> None:
        """Remove the metadata file that a catalog in this process wrote for a commit that did not happen."""
        table = self.table
        logged = {entry.metadata_file for entry in now.metadata.metadata_log} if now else set()
        live = logged | ({now.metadata_location} if now else set())
        own = [  # check: live-metadata-file
            location
            for location in unnamed(table.catalog.written_metadata, live)
            if locations.deletable(location, table.roots)
        ]
        if table.storage.delete(own).failed:
            self.context.warn("an unused metadata file could not be removed")

    def _await_visible(
        self, cause: BaseException | None, confirmed: TableMetadata | None = None
    ) -> Table:
        """Reload the table until it shows the change; without a cause, the catalog has confirmed it.

        Args:
            cause: the error of the commit.
            confirmed: the metadata in the catalog's answer, for a table that is dropped at once.

        Raises:
            CommitUnknownError: the change did not appear.
        """
        table = self.table
        policy = RetryPolicy.of(table.properties, STATUS_CHECK)
        now: Table | None = None
        is_gone = False
        for attempt in range(1, policy.retries + 2):
            try:
                now = table.refreshed()
            except Exception as error:  # noqa: BLE001 - a failed reload says nothing about the commit
                now, is_gone = None, isinstance(error, NotFoundError)
            if now is not None and self.find_commit(now.metadata) is not None:
                return now
            if attempt <= policy.retries:
                policy.backoff(self.context).wait(attempt)
        if cause is None and now is not None:
            return now
        if is_gone and confirmed is not None:
            # Another process dropped or renamed the table after the commit.
            return replace(table, metadata=confirmed, creating=())
        raise self._unknown(cause) from cause

    def _unknown(self, cause: BaseException | None) -> CommitUnknownError:
        return CommitUnknownError(
            f"the catalog did not confirm the commit to {self.table.identifier}: "
            f"{first_line(cause) if cause else 'the table could not be read afterwards'}",
            hint="it may have succeeded, so no file was removed; look for its operation id with `lake snapshots`",
        )


def _not_accepted(table: Table, cause: Exception) -> BadInputError:
    return BadInputError(
        f"the catalog does not accept the commit to {table.identifier}: {first_line(cause)}"
    )


def _drop_old_metadata(context: RunContext, before: Table, after: Table) -> None:
    """Delete metadata files that dropped out of the log, if the table's properties request it."""
    properties = before.properties
    if not DELETE_OLD_METADATA.of(properties) or before.creating:
        return
    if not GC_ENABLED.of(properties):  # check: gc-of-metadata-log
        # One of them may be the current one of another catalog.
        return
    logged = {entry.metadata_file for entry in after.metadata.metadata_log}
    logged.add(after.metadata_location)
    old = [
        location
        for location in unnamed(
            [entry.metadata_file for entry in before.metadata.metadata_log], logged
        )
        # check: only-metadata-names
        if metadata_files.is_metadata_name(location) and locations.deletable(location, after.roots)
    ]
    try:
        failed = len(after.storage.delete(old).failed)
    except LakeError as error:
        # The commit has succeeded regardless.
        context.warn(f"old metadata files were not removed: {error.message}")
        return
    if failed:
        context.warn("some old metadata files could not be removed")
