"""Mutual exclusion between committing and discarding a staged run.

A run may be committed by the process that wrote it, by a later run with its id, and by a replay. It is discarded at
a user's request, and by the process that wrote it if that fails. A snapshot must never reference a deleted
file. There is no lock common to all storages, so each side writes its marker before it checks for the other's; in
any order, at least one of them sees the conflict.

- A commit writes a claim, checks for a discard marker and that the manifests are those that it has read, and commits:
  a run that was discarded may have been written again, with other files. The process that wrote the run has its claim
  in the manifests from the beginning, as their `lake.writer`.
- A discard writes its marker, checks for claims, loads the table, keeps every file that is referenced by a retained
  snapshot of any branch, deletes the other files, then the manifests, then its marker.

A claim whose process has certainly ended is ignored if that process changed the catalog itself. If a server
does that, the last request of a dead process may still be in transit; in other cases the state of the process is
unknown (another machine, or a commit without a response). Such a claim is valid for ten minutes, by the clock of the
store as well. If a discard is killed, its marker remains: the run can no longer be committed, and the next discard
completes it. Files are found by the run's operation id in their names below the table's data location, never by the
entries of a manifest.

Committers do not need claims among themselves: the run's id (or, if the snapshot does not contain it, the paths
of the files) is searched for in the history of the same head that the commit requires.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lake.core.base import locations
from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    LakeError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.options import Option
from lake.core.base.process_identity import process_name, still_runs
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.referenced_files import find_metadata_files, find_referenced
from lake.core.transaction.staging.staged_run import (
    RunMarks,
    RunName,
    StagedRun,
    find_marks,
    find_run,
    job_and_checkpoint,
    manifest_locations,
    manifests_folder,
    remove_manifests,
    shown_run,
)
from lake.core.transaction.store_clock import require_clock

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

T = TypeVar("T")
_DOUBT_MS = 10 * 60_000
# Searches for a run's files while snapshots expire.
_ATTEMPTS = 3
_CLAIM, _WITHDRAWAL = "lake-commit", "lake-withdrawal"
_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Discarded:
    """The result of a discard.

    Args:
        files: the number of deleted files.
        committed: the number of files that were kept because snapshots reference them.
        failed: locations of files that could not be deleted.
    """

    files: int
    committed: int
    failed: tuple[str, ...] = ()


@contextmanager
def claim_for_commit(session: Session, table: Table, runs: Collection[RunMarks]) -> Iterator[None]:
    """Prevent staged runs from being discarded while the block commits them.

    Raises:
        CommitConflictError: one of them is being discarded, no longer exists, or was written again.
        CorruptFileError: the manifest of one is damaged.
    """
    with _claimed(session, table, [marks.name for marks in runs]):
        for marks in runs:
            _require_there(table, marks)  # check: run-still-staged
        yield


@contextmanager
def claim_available(
    session: Session, table: Table, runs: Collection[RunMarks]
) -> Iterator[frozenset[RunName]]:
    """Prevent staged runs from being discarded while the block commits them; yield those that are as they were read.

    Raises:
        CorruptFileError: the manifest of one is damaged.
    """
    with _claimed(session, table, [marks.name for marks in runs]):
        markers = {marks.name: _discard_marker(table, marks.name) for marks in runs}
        found = table.storage.look_up(list(markers.values()))
        yield frozenset(
            marks.name
            for marks in runs
            if found[markers[marks.name]] is None and _is_same(find_marks(table, marks.name), marks)
        )


@contextmanager
def _claimed(session: Session, table: Table, names: Collection[RunName]) -> Iterator[None]:
    claims = [_claim(session, table, name) for name in names]
    keep = False
    try:
        for location in claims:
            _write(session, table, location, process_name())
        yield
    except CommitUnknownError:
        keep = True
        for location in claims:
            _write_unknown(session, table, location)
        raise
    finally:
        if not keep:
            for location in table.storage.delete(claims).failed:
                session.warn(f"{location} could not be deleted: it delays a discard of the run")


def _require_there(table: Table, marks: RunMarks) -> None:
    name = marks.name
    if table.storage.exists(_discard_marker(table, name)):
        raise CommitConflictError(f"{shown_run(name)} is being discarded", hint=_completing(name))
    now = find_marks(table, name)
    if now is None:
        raise CommitConflictError(f"{shown_run(name)} was committed or discarded meanwhile")
    if not _is_same(now, marks):  # check: run-not-written-again
        raise CommitConflictError(
            f"{shown_run(name)} was discarded and written again meanwhile",
            hint="run the command again: it will read the new files",
        )


def _is_same(now: RunMarks | None, marks: RunMarks) -> bool:
    """Whether manifests are those of a run as it was read: the names of its files contain the operation id."""
    return now is not None and now.operation_id == marks.operation_id


def _completing(name: RunName) -> str:
    """Return the hint how the discard of a run is completed."""
    if isinstance(name, str):
        return f"{Option.DISCARD} {name} completes that"
    return "run the stream again"


def discarding(name: RunName) -> str:
    """Return how the files of a run that are not committed are removed, as a clause."""
    if isinstance(name, str):
        return f"{Option.DISCARD} {name} removes the files of the run that are not committed"
    return "the next run of the stream removes or commits them"


def claimed_by_others(
    session: Session, table: Table, runs: Collection[RunMarks]
) -> frozenset[RunName]:
    """Return the names of those runs that another process may be committing, or is discarding."""
    files = _claim_files(table)
    return frozenset(
        marks.name
        for marks in runs
        if f"{_WITHDRAWAL}-{_suffix(marks.name)}" in files
        or _may_be_committed(session, table, marks, _claims_in(table, files, marks.name), None)
    )


def mark_unknown(session: Session, table: Table, name: RunName) -> None:
    """Record that the outcome of a run's commit is unknown: it may still succeed."""
    _write_unknown(session, table, _claim(session, table, name))


def _write_unknown(session: Session, table: Table, location: str) -> None:
    """Write a claim without a process; if that fails, warn: that the outcome is unknown is more important."""
    try:
        _write(session, table, location, "")
    except LakeError as error:
        session.warn(
            f"{location} could not be written, so do not discard the run for ten minutes: {error.message}"
        )


def discard_run(
    session: Session,
    table: Table,
    marks: RunMarks,
    *,
    own_operation: str | None = None,
    known: TableMetadata | None = None,
) -> Discarded:
    """Delete a staged run: its manifests, and its files except those that a snapshot references.

    Args:
        session: clock, ids and the register of files that may be live.
        table: the table.
        marks: the run's marks.
        own_operation: the operation id of the caller, if it wrote the run itself.
        known: metadata from before the run was written; its snapshots cannot reference the run's files.

    Raises:
        RefusedError: another process may be committing the run, or this machine's clock is ahead of the store's, so
            that claims look old; nothing was deleted.
        CorruptFileError: a snapshot cannot be read, so the files that it references are unknown.
    """
    marker = _discard_marker(table, marks.name)
    has_begun = table.storage.exists(marker)
    try:
        _write(session, table, marker, process_name())
        claims = _claims(table, marks.name)
        _refuse_claims(session, table, marks, claims, own_operation)  # check: claimed-run
        rest = _while_expiring(table.refreshed(), lambda now: _rest_of(now, marks, known))
        unreferenced = [
            path
            for path in rest.found
            # check: committed-files-of-discard
            if locations.canonical(path) not in rest.referenced | session.protected_files
        ]
        has_begun = True
        outcome = table.storage.delete([*unreferenced, *rest.metadata])
        failed = list(outcome.failed) or remove_manifests(table, marks.name)
    except BaseException:
        if not has_begun and table.storage.delete([marker]).failed:
            session.warn(
                f"{marker} could not be deleted: until then {shown_run(marks.name)} is not committed"
            )
        raise
    if not failed:
        table.storage.delete([*claims, marker])
    return Discarded(
        sum(path not in outcome.failed for path in unreferenced),
        len(rest.referenced),
        tuple(failed),
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What a run left: its files, those of them that snapshots reference, and metadata files that none uses."""

    found: list[str]
    referenced: frozenset[str]
    metadata: list[str]


def _while_expiring(table: Table, search: Callable[[Table], T]) -> T:
    """Search; again in the newer table if an expiry removes what this one needs."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return search(table)
        except NotFoundError:
            now = table.refreshed()
            if now.metadata_location == table.metadata_location:
                raise
            table = now
    return search(table)


def _rest_of(table: Table, marks: RunMarks, known: TableMetadata | None) -> _Rest:
    found = _files_of(table, marks)
    referenced = find_referenced(table.storage, table.metadata, found, known=known)
    return _Rest(found, referenced, _prepared(table, marks, known=known))


def _files_of(table: Table, marks: RunMarks) -> list[str]:
    # Without an operation id, every file name would match.
    if not marks.operation_id:
        return []
    table.storage.end_uploads(table.data_location, marks.operation_id)
    return table.storage.find(table.data_location, marks.operation_id)


def _prepared(table: Table, marks: RunMarks, *, known: TableMetadata | None = None) -> list[str]:
    """Find metadata files that the run's own killed commit had written and that no snapshot uses.

    The name alone does not decide: a manifest that a commit merged may outlive all files that the commit added.
    """
    folder, text = table.metadata_folder, marks.operation_id
    names = [name for name, is_folder in table.storage.list_folder(folder) if not is_folder]
    found = [locations.join(folder, name) for name in names if text and text in name]
    live = find_metadata_files(table.storage, table.metadata, found, known=known)
    return [path for path in found if path not in live]


def remove_committed(table: Table, names: Collection[RunName]) -> list[str]:
    """Remove the manifests and claims of committed runs; return what could not be removed.

    The runs were written to be committed later, so no process has written metadata files for them. Claims are removed
    first: without the manifests, no later command would find them.
    """
    files = _claim_files(table)
    failed = table.storage.delete(
        location for name in names for location in _claims_in(table, files, name)
    ).failed
    manifests = [manifest_locations(table, name) for name in names]
    # The first manifest is removed first: without it, a run cannot be committed.
    first = table.storage.delete(item[0] for item in manifests).failed
    rest = [other for item in manifests if item[0] not in first for other in item[1:]]
    return [*failed, *first, *table.storage.delete(rest).failed]


def remove_leftovers(table: Table, run: StagedRun, *, by_other: bool) -> list[str]:
    """Remove the remains of a committed run, except its live files; return what could not be removed.

    Args:
        table: the table after the commit.
        run: the run.
        by_other: whether a commit of another operation than the run's own made its files live, so that the
            metadata files of its own operation are unused.
    """
    failed = remove_manifests(table, run.marks.name)
    unused = _claims(table, run.marks.name)
    if by_other and not run.problem:
        own = {locations.canonical(file.path) for file in run.files}
        unused += [
            path for path in _files_of(table, run.marks) if locations.canonical(path) not in own
        ]
        unused += _while_expiring(table, lambda now: _prepared(now, run.marks))
    return [*failed, *table.storage.delete(unused).failed]


def delete_unreferenced(
    session: Session, table: Table, files: Collection[str], *, known: TableMetadata
) -> list[str]:
    """Delete files of a run that another process committed, except those that its snapshot references.

    No process can commit them any more: the run's id is in the table. Returns what could not be deleted.

    Args:
        session: the register of files that may be live.
        table: the current table.
        files: their locations.
        known: metadata from before they were written.
    """
    kept = session.protected_files | _while_expiring(
        table, lambda now: find_referenced(now.storage, now.metadata, files, known=known)
    )
    unused = [path for path in files if locations.canonical(path) not in kept]
    return list(table.storage.delete(unused).failed)


def find_staged_run(table: Table, name: RunName) -> StagedRun | None:
    """Return what remains of a run, with a problem if a discard has begun; None if there is nothing."""
    run = find_run(table, name)
    if not table.storage.exists(_discard_marker(table, name)):
        return run
    marks = run.marks if run else RunMarks.of(name)
    return StagedRun(marks=marks, problem=f"{shown_run(name)} is being discarded")


def _refuse_claims(
    session: Session, table: Table, marks: RunMarks, claims: list[str], own_operation: str | None
) -> None:
    if _may_be_committed(session, table, marks, claims, own_operation):
        raise RefusedError(
            f"{shown_run(marks.name)} of {table.identifier} may be being committed by another process",
            hint="try again when that process has ended, or in ten minutes",
        )
    # Else the age alone decides about a process on another machine.
    if _claimants(table, marks, claims, own_operation):
        require_clock(session, table)  # check: clock-of-discard


def _may_be_committed(
    session: Session, table: Table, marks: RunMarks, claims: list[str], own_operation: str | None
) -> bool:
    now_ms = session.clock.now_ms()
    found = _claimants(table, marks, claims, own_operation)
    return any(is_running or now_ms - written_ms < _DOUBT_MS for is_running, written_ms in found)


def _claimants(
    table: Table, marks: RunMarks, claims: list[str], own_operation: str | None
) -> list[tuple[bool, int]]:
    """Return for each process that may commit a run whether it certainly runs, and when it claimed the run.

    The time is the later one of its own clock's and the store's: its clock may be behind.
    """
    found = {location: claim for location in claims if (claim := _read(table, location))}
    if marks.writer and marks.operation_id != own_operation:
        found[manifest_locations(table, marks.name)[0]] = (marks.writer, marks.written_ms)
    stored = table.storage.look_up(found)
    claimants: list[tuple[bool, int]] = []
    for location, (process, written_ms) in found.items():
        running, file = still_runs(process), stored[location]
        if running is False and not table.catalog.is_served:
            continue
        stored_ms = file.modified_ms if file else None
        # check: claim-of-late-clock
        claimants.append((bool(running), max(written_ms, stored_ms or written_ms)))
    return claimants


def _discard_marker(table: Table, name: RunName) -> str:
    return locations.join(manifests_folder(table), f"{_WITHDRAWAL}-{_suffix(name)}")


def _claim(session: Session, table: Table, name: RunName) -> str:
    file = f"{_CLAIM}-{_suffix(name)}-{session.ids.uuid()}"
    return locations.join(manifests_folder(table), file)


def _claims(table: Table, name: RunName) -> list[str]:
    return _claims_in(table, _claim_files(table), name)


def _claims_in(table: Table, files: Collection[str], name: RunName) -> list[str]:
    folder, start = manifests_folder(table), f"{_CLAIM}-{_suffix(name)}-"
    return [locations.join(folder, file) for file in files if file.startswith(start)]


def _claim_files(table: Table) -> list[str]:
    """Return the names of the claims and markers of all runs."""
    folder = manifests_folder(table)
    listed = table.storage.list_folder(folder)
    table.require_listed(folder, listed)
    names = [name for name, is_folder in listed if not is_folder]
    return [name for name in names if name.startswith((f"{_CLAIM}-", f"{_WITHDRAWAL}-"))]


def _suffix(name: RunName) -> str:
    job_id, checkpoint_id = job_and_checkpoint(name)
    return job_id if isinstance(name, str) else f"{job_id}-{checkpoint_id}"


def _write(session: Session, table: Table, location: str, process: str) -> None:
    claim = {"process": process, "written_at_ms": session.clock.now_ms()}
    table.storage.write(location, json.dumps(claim).encode())


def _read(table: Table, location: str) -> tuple[str, int] | None:
    """Return the process and the time of a claim.

    If the claim is incomplete or missing, its owner has yet to check for our marker and will see it.
    """
    try:
        claim = json.loads(table.storage.read(location, limit=_LIMIT))
        return str(claim["process"]), int(claim["written_at_ms"])
    except (BadInputError, ValueError, KeyError, TypeError, RecursionError):
        return None


def expired_base(table: Table, branch: str, marks: RunMarks) -> str | None:
    """Return what is missing of a branch's history since a run was written, as a clause; None if it is whole."""
    metadata = table.metadata
    head = ancestry.branch_head(metadata, branch)
    head_id = head.snapshot_id if head else None
    if ancestry.since(metadata, head_id, marks.base_snapshot_id)[1]:
        return None
    return (
        f"{shown_run(marks.name)} was written on snapshot {marks.base_snapshot_id}, and not all snapshots since "
        "then are left"
    )
