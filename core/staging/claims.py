"""Who may commit a staged run and who may delete it: never both.

A run may be committed by the process that wrote it, by a later run of its id and by a replay; it is deleted by
`lake ingest --discard`, and by the process that wrote it when that fails. No snapshot may come to hold a file
that goes. Storages have no locks in common, so both sides put up a sign first and look for the other's then:
whatever the order, at least one of them sees it.

- Who commits puts up a claim, looks for a withdrawal's sign and for the manifests, and commits. The process that
  wrote the run has its claim in the manifests from the beginning, as their `lake.writer`.
- Who withdraws puts up the sign, looks for claims, loads the table, spares every file that occurs in a retained
  snapshot of any branch, deletes the others, then the manifests, then its sign.

A claim whose process is known to be gone counts for nothing where that process changed the catalog itself. Where a
server does that, the last request of a dead process may still be on its way, and elsewhere nobody can tell (another
machine, or a commit whose answer never came): there it counts for ten minutes. Killed half-way, a withdrawal
leaves its sign: nobody can commit what is left, and the next withdrawal ends it. Files are found by the run's
operation id in their names below the table's data, never by what a manifest lists.

Committers do not need this among one another: the run's id (or, where that is not in the snapshot, the files'
paths) is looked for against the very head that the commit requires.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.errors import BadInputError, CommitConflictError, CommitUnknownError, RefusedError
from lake.core.process_identity import process_name, still_runs
from lake.core.snapshots.referenced_files import find_metadata_files, find_referenced
from lake.core.staging.staged_run import (
    RunMarks,
    StagedRun,
    find_run,
    job_id_of,
    manifest_locations,
    manifests_folder,
    remove_manifests,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table
    from lake.core.session import Session

_DOUBT_MS = 10 * 60_000
_CLAIM, _WITHDRAWAL = "lake-commit", "lake-withdrawal"
_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a withdrawal did.

    Args:
        files: how many files it deleted.
        committed: how many it spared, because snapshots hold them.
        failed: locations that could not be deleted.
    """

    files: int
    committed: int
    failed: tuple[str, ...] = ()


@contextmanager
def committing(session: Session, table: Table, run_ids: Collection[str]) -> Iterator[None]:
    """Keep staged runs, by their ids or job ids, from being withdrawn while the block commits them.

    Raises:
        CommitConflictError: one of them is being withdrawn, or is gone.
    """
    claims = [_claim(session, table, run_id) for run_id in run_ids]
    keep = False
    try:
        for location in claims:
            _write(session, table, location, process_name())
        for run_id in run_ids:
            _require_there(table, run_id)
        yield
    except CommitUnknownError:
        keep = True
        for location in claims:
            _write(session, table, location, "")
        raise
    finally:
        if not keep:
            table.storage.delete(claims)


def _require_there(table: Table, run_id: str) -> None:
    if table.storage.exists(_discard_marker(table, run_id)):
        raise CommitConflictError(
            f"run {run_id} is being discarded", hint=f"lake ingest --discard {run_id} ends it"
        )
    if not table.storage.exists(manifest_locations(table, run_id)[0]):
        raise CommitConflictError(f"run {run_id} was committed or discarded meanwhile")


def doubt(session: Session, table: Table, run_id: str) -> None:
    """Note that the outcome of a run's commit is not known: it may land yet."""
    _write(session, table, _claim(session, table, run_id), "")


def withdraw(
    session: Session,
    table: Table,
    marks: RunMarks,
    *,
    own_operation: str | None = None,
    known: TableMetadata | None = None,
) -> Withdrawn:
    """Delete a staged run: its files but those that a snapshot holds, and its manifests.

    Args:
        session: clock, ids and the register of files that may be live.
        table: the table.
        marks: of the run.
        own_operation: the operation id of the caller, if it wrote the run itself.
        known: metadata from before the run was written, whose snapshots cannot hold it.

    Raises:
        RefusedError: somebody may be committing it; nothing was deleted.
        CorruptFileError: a snapshot cannot be read, so that nobody knows what it holds.
    """
    sign = _discard_marker(table, marks.run_id)
    begun = table.storage.exists(sign)
    try:
        _write(session, table, sign, process_name())
        claims = _claims(table, marks.run_id)
        _refuse_claims(session, table, marks, claims, own_operation)
        now = table.refreshed()
        found = _files_of(table, marks)
        held = find_referenced(table.storage, now.metadata, found, known=known)
        gone = [
            path
            for path in found
            if locations.canonical(path) not in held | session.protected_files
        ]
        beside = _prepared(now, marks, known=known)
        begun = True
        outcome = table.storage.delete([*gone, *beside])
        failed = list(outcome.failed) or remove_manifests(table, marks.run_id)
    except BaseException:
        if not begun:
            table.storage.delete([sign])
        raise
    if not failed:
        table.storage.delete([*claims, sign])
    return Withdrawn(sum(path not in outcome.failed for path in gone), len(held), tuple(failed))


def _files_of(table: Table, marks: RunMarks) -> list[str]:
    # Without an operation id every file's name would do.
    if not marks.operation_id:
        return []
    table.storage.end_uploads(table.data_location, marks.operation_id)
    return table.storage.find(table.data_location, marks.operation_id)


def _prepared(table: Table, marks: RunMarks, *, known: TableMetadata | None = None) -> list[str]:
    """Find what the run's own commit had written when it was killed: metadata that no snapshot is made of.

    Its name alone does not tell: what a commit merged may outlive all the files that it added.
    """
    folder, text = table.metadata_folder, marks.operation_id
    names = [name for name, is_folder in table.storage.list_folder(folder) if not is_folder]
    found = [locations.join(folder, name) for name in names if text and text in name]
    live = find_metadata_files(table.storage, table.metadata, found, known=known)
    return [path for path in found if path not in live]


def clear(table: Table, run: StagedRun, *, by_other: bool) -> list[str]:
    """Remove what is left of a run that landed, but its files; return what could not be removed.

    Args:
        table: after the commit.
        run: the run.
        by_other: whether a commit of another operation than the run's own made its files live, so that what
            this had prepared is nobody's.
    """
    failed = remove_manifests(table, run.marks.run_id)
    unused = _claims(table, run.marks.run_id)
    if by_other and not run.problem:
        own = {locations.canonical(file.path) for file in run.files}
        unused += [
            path for path in _files_of(table, run.marks) if locations.canonical(path) not in own
        ]
        unused += _prepared(table, run.marks)
    return [*failed, *table.storage.delete(unused).failed]


def delete_unreferenced_manifests(
    session: Session, table: Table, files: Collection[str], *, known: TableMetadata
) -> None:
    """Delete files of a run that landed by another's hand, but those that its snapshot holds.

    Nobody can commit them any more: the run's id is in the table.

    Args:
        session: the register of files that may be live.
        table: as it is now.
        files: their locations.
        known: metadata from before they were written.
    """
    held = find_referenced(table.storage, table.metadata, files, known=known)
    table.storage.delete(
        path for path in files if locations.canonical(path) not in held | session.protected_files
    )


def find_marker(table: Table, run_id: str) -> StagedRun | None:
    """Return what lies there of a run, with a problem where its withdrawal has begun; None for nothing."""
    run = find_run(table, run_id)
    if not table.storage.exists(_discard_marker(table, run_id)):
        return run
    marks = run.marks if run else RunMarks(run_id=run_id)
    return StagedRun(marks=marks, problem=f"run {run_id} is being discarded")


def _refuse_claims(
    session: Session, table: Table, marks: RunMarks, claims: list[str], own_operation: str | None
) -> None:
    now_ms = session.clock.now_ms()
    told = [claim for location in claims if (claim := _read(table, location)) is not None]
    if marks.writer and marks.operation_id != own_operation:
        told.append((marks.writer, marks.written_ms))
    for process, written_ms in told:
        running = still_runs(process)
        ended = running is False and not table.catalog.is_served
        if running or (not ended and now_ms - written_ms < _DOUBT_MS):
            raise RefusedError(
                f"run {marks.run_id} of {table.identifier} may be about to be committed by another process",
                hint="try again when that has ended, or in ten minutes",
            )


def _discard_marker(table: Table, run_id: str) -> str:
    return locations.join(manifests_folder(table), f"{_WITHDRAWAL}-{job_id_of(run_id)}")


def _claim(session: Session, table: Table, run_id: str) -> str:
    name = f"{_CLAIM}-{job_id_of(run_id)}-{session.ids.uuid()}"
    return locations.join(manifests_folder(table), name)


def _claims(table: Table, run_id: str) -> list[str]:
    folder, start = manifests_folder(table), f"{_CLAIM}-{job_id_of(run_id)}-"
    listed = table.storage.list_folder(folder)
    table.require_listed(folder, listed)
    names = [name for name, is_folder in listed if not is_folder]
    return [locations.join(folder, name) for name in names if name.startswith(start)]


def _write(session: Session, table: Table, location: str, process: str) -> None:
    told = {"process": process, "written_at_ms": session.clock.now_ms()}
    table.storage.write(location, json.dumps(told).encode())


def _read(table: Table, location: str) -> tuple[str, int] | None:
    """Return the process and the time of a claim.

    One that is not whole or gone has an owner who looks for the sign after this.
    """
    try:
        told = json.loads(table.storage.read(location, limit=_LIMIT))
        return str(told["process"]), int(told["written_at_ms"])
    except (BadInputError, ValueError, KeyError, TypeError, RecursionError):
        return None
