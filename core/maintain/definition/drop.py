"""Drop a table from its catalog and, on request, delete the files that belong to it.

A catalog with an entry for each table removes the entry first, and then the files are deleted. In a Hadoop catalog
the metadata files are the table: they are deleted last, so that a purge that was cut off can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    LakeError,
    NotATableError,
    NotFoundError,
    RefusedError,
    StoppedError,
)
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.maintain.definition.entries import change_entry
from lake.core.maintain.definition.facts import DropFacts, DropResult
from lake.core.spec.properties.table_properties import GC_ENABLED
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.shared_locations import (
    names_of_table,
    refuse_other_databases,
    require_own_folders,
)
from lake.core.transaction.garbage.nested_tables import FOLDERS, NestedTables
from lake.core.transaction.garbage.other_histories import refuse_continued
from lake.core.transaction.garbage.other_tables import OtherTables
from lake.core.transaction.garbage.own_files import own_files
from lake.core.transaction.garbage.reachability import KINDS, Reachability
from lake.core.transaction.locks.table_lock import with_table_lock
from lake.core.transaction.replanning import replanned
from lake.core.transaction.session import Session

_BATCH = 1000
_ATTEMPTS = 10
_METADATA = "table metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPlan:
    """A table to drop.

    Args:
        table: the table.
        files: path, kind and bytes of the files to delete, in the order of deletion; None to keep all files.
        spared: the number of files that the table references and that do not belong to it.
        unreadable: manifests and manifest lists that cannot be read: the files that they name stay.
    """

    table: Table
    files: pa.Table | None
    spared: int = 0
    unreadable: tuple[str, ...] = ()

    def facts(self) -> DropFacts:
        """Return the plan by its names in the output."""
        files = self.files
        return DropFacts(
            location=self.table.metadata.location,
            metadata_location=self.table.metadata_location,
            snapshots=len(self.table.metadata.snapshots),
            purge=files is not None,
            files=0 if files is None else files.num_rows,
            bytes=0 if files is None else int(pc.sum(files["bytes"]).as_py() or 0),
            spared_files=self.spared,
        )


def plan_drop(
    session: Session, table: Table, *, purge: bool, ignore_unreadable: bool = False
) -> DropPlan:
    """Find the files that belong to the table.

    The table's files are those that its current metadata and its log of metadata files reference and that are in the
    table's own folders. Files that nothing references, such as staged runs and Flink checkpoints, are not among them.

    Args:
        session: the session of the invocation.
        table: the table.
        purge: whether its files are deleted.
        ignore_unreadable: delete files although another table that may own some of them cannot be read.

    Raises:
        RefusedError: the catalog cannot drop tables, or a safety rule forbids the deletion.
    """
    if not session.catalog.has_entries:
        _check_folder(session, table, purge=purge)
    if not purge:  # check: purge-is-explicit
        return DropPlan(table=table, files=None)
    metadata = table.metadata
    if session.catalog.has_entries:
        kept = f"without {Option.PURGE} the table is dropped and its files stay"
    else:
        kept = f"move the folder {metadata.location} out of the warehouse: its files stay"
    if not GC_ENABLED.of(table.properties):
        raise RefusedError(
            f"gc.enabled of {table.identifier} is false: its files may belong to other tables",
            hint=kept,
        )
    place = table.metadata_location
    require_own_folders(metadata, place, table.storage, table.identifier, kept)
    if names := names_of_table(session.catalog, metadata, place, table.storage, table.identifier):
        raise RefusedError(
            f"{table.identifier} shares its files with {', '.join(names[:3])}", hint=kept
        )
    refuse_other_databases(table, kept)
    named = session.catalog.metadata_files(table)
    refuse_continued(session, table, kept)
    reach = Reachability(table.storage, engine_of=session.manifest_engine)
    found = reach.garbage(metadata, metadata.snapshots, (), whole=True)
    others = OtherTables(session, table, must_read=not ignore_unreadable)
    own = own_files(table, found.files, others)
    ordered = [own.filter(pc.equal(own["kind"], kind)) for kind in KINDS]
    nested = NestedTables(table.storage, table.roots)
    documents = [
        path for path in named if locations.deletable(path, table.roots) and not nested.owns(path)
    ]
    if not session.catalog.has_entries and len(documents) < len(named):
        raise RefusedError(
            f"{named[-1]} is not below the location in the metadata of {table.identifier}: {metadata.location}",
            hint=f"give {Option.WAREHOUSE} as it is in that location",
        )
    last = pa.table(
        {
            "path": documents,
            "kind": [_METADATA] * len(documents),
            "bytes": [0] * len(documents),
        },
        schema=own.schema,
    )
    last = last.filter(pc.invert(others.own(last["path"])))
    files = pa.concat_tables([*ordered, last])
    spared = found.files.num_rows + len(named) - files.num_rows
    return DropPlan(
        table=table,
        files=files,
        spared=spared,
        unreadable=found.unreadable,
    )


def _check_folder(session: Session, table: Table, *, purge: bool) -> None:
    """Check that the table of a Hadoop catalog can be dropped.

    Raises:
        RefusedError: the files would stay, or nothing can be committed to the table.
    """
    if not purge:
        raise RefusedError(
            f"in a hadoop catalog {table.identifier} is its folder, so it cannot be dropped while its files stay: "
            f"{table.metadata.location}",
            hint=f"{Option.PURGE} deletes its files; to keep them, end its writers and move the folder out of the "
            "warehouse",
        )
    session.catalog.refuse_commits(table.identifier, table.metadata)  # check: purge-can-commit


def preview(plan: DropPlan) -> Outcome:
    """Return a dry run's outcome."""
    return _outcome(plan, Status.DRY_RUN)


def drop(
    session: Session,
    table: Table,
    *,
    purge: bool,
    ignore_unreadable: bool = False,
    wait_ms: int | None = None,
) -> Outcome:
    """Drop the table, and delete its files if it is purged.

    Args:
        session: the session.
        table: the table as it was loaded.
        purge: whether its files are deleted.
        ignore_unreadable: go on although another table, which may own files, cannot be read.
        wait_ms: how long to wait for another run that works on the table; None not to wait.

    Raises:
        RefusedError: see `plan_drop`.
        LockedError: another run works on the table.
        NotFoundError: the table was dropped or renamed meanwhile; no file was deleted.
        CommitConflictError: another process registered the table again, or changed a table of a Hadoop catalog, after
            some of its files were deleted.
        CommitUnknownError: the table may have been dropped; no file was deleted.
    """
    outcome = with_table_lock(
        session,
        table,
        lambda now, _: _execute(
            session, plan_drop(session, now, purge=purge, ignore_unreadable=ignore_unreadable)
        ),
        command="drop",
        wait_ms=wait_ms,
    )
    if outcome.status is Status.DONE and not session.catalog.has_entries:
        # The lock was in one of the folders. An empty folder would be a namespace.
        location = table.metadata.location
        for folder in (*(locations.join(location, name) for name in FOLDERS), location):
            table.storage.remove_empty_folders(folder)
    return outcome


def _execute(session: Session, plan: DropPlan) -> Outcome:
    table, catalog = plan.table, session.catalog
    if table.refreshed().metadata_location != table.metadata_location and plan.files is not None:
        raise RefusedError(
            f"{table.identifier} was changed since its files were listed; nothing was changed",
            hint="end its writers, and run the command again",
        )
    if not catalog.has_entries and plan.files is not None:
        return _purge(session, plan, plan.files)
    if plan.files is None:
        # The location that is reported is the one by which the table can be registered again.
        dropped = replace(plan, table=_drop_newest(session, table))
        return _outcome(dropped, Status.DONE, DropResult(plan=dropped.facts()))
    if not _drop_entry(session, table):
        # Another process may have renamed the table, and its files would still be needed.
        raise CommitUnknownError(
            f"the catalog did not confirm that it dropped {table.identifier}, so no file was deleted",
            hint="if the table does not exist under another name, register it again with `lake register "
            f"{table.identifier} {table.metadata_location}` and repeat the command",
        )
    try:
        names = names_of_table(catalog, table.metadata, table.metadata_location, table.storage)
    except LakeError as error:
        return _left(session, plan, DropResult(plan=plan.facts()), error)
    if names:
        raise RefusedError(
            f"{table.identifier} was dropped, but {', '.join(names[:3])} has the same files: none was deleted"
        )
    return _purge(session, plan, plan.files)


def _drop_entry(session: Session, table: Table) -> bool:
    """Remove the table's entry; return whether the catalog confirmed it."""
    catalog = session.catalog
    return change_entry(
        session,
        f"table {table.identifier}",
        lambda: catalog.drop(table),
        lambda: not catalog.exists(table.identifier),
    )


def _drop_newest(session: Session, table: Table) -> Table:
    """Remove the table's entry; return the table with what other writers committed to it meanwhile.

    Raises:
        NotFoundError: the table was dropped or renamed, or another one has its name now.
        CommitConflictError: other writers commit too often.
    """

    def attempt(newest: Table) -> Table:
        _drop_entry(session, newest)
        return newest

    return replanned(attempt, table, lambda last: last.refreshed(), rounds=_ATTEMPTS)


def _purge(session: Session, plan: DropPlan, files: pa.Table) -> Outcome:
    table, dropped = plan.table, session.catalog.has_entries
    again = _again(table) if dropped else "run the command again"
    if dropped:
        # A process that is killed prints nothing, and no catalog remembers the location.
        session.note(
            "deleting the table's files; if this is cut off, go on with "
            f"`{_registration(table)}` and the same command",
            {"metadata_location": table.metadata_location},
        )
    failed: list[str] = []
    result = DropResult(plan=plan.facts())
    meter = Meter("deleting files", tasks=files.num_rows)
    with shown(session.progress, meter):
        for kind, paths in _steps(files):
            if failed and kind == _METADATA:
                # The metadata still shows which files are left.
                break
            for start in range(0, len(paths), _BATCH):
                try:
                    session.interrupts.checkpoint()
                except StoppedError:
                    session.warn(f"not all files of the table were deleted; to go on, {again}")
                    raise
                try:
                    _require_unchanged(session, table, result)
                except CommitConflictError:
                    raise
                except LakeError as error:
                    if not dropped:
                        raise
                    return _left(session, plan, result, error)
                batch = paths[start : start + _BATCH]
                outcome = table.storage.delete(batch)
                failed += outcome.failed
                result.deleted_files += len(batch) - len(outcome.failed)
    if failed:
        session.warn(
            f"{len(failed)} files could not be deleted, e.g. {failed[0]}; the metadata file stays: to try again, "
            f"{again}"
        )
    elif not dropped and session.catalog.exists(table.identifier):
        raise _changed(table, result)
    result.failed_deletes = len(failed)
    return _outcome(plan, Status.PARTIAL if failed else Status.DONE, result)


def _left(session: Session, plan: DropPlan, result: DropResult, why: LakeError) -> Outcome:
    """Return the outcome if the catalog cannot be read, but has dropped the entry: the command changed the table."""
    session.warn(f"{why}; not all files of the table were deleted; to go on, {_again(plan.table)}")
    assert plan.files is not None  # noqa: S101 - it is a purge
    result.failed_deletes = plan.files.num_rows - result.deleted_files
    return _outcome(plan, Status.PARTIAL, result)


def _again(table: Table) -> str:
    return f"register the table with `{_registration(table)}` and repeat the command"


def _registration(table: Table) -> str:
    return f"lake register {table.identifier} {table.metadata_location}"


def _require_unchanged(session: Session, table: Table, result: DropResult) -> None:
    """Check that no process registered the table again, or committed to it in a Hadoop catalog, meanwhile."""
    if not session.catalog.has_entries:
        # check: folder-unchanged-at-purge
        if table.refreshed().metadata_location != table.metadata_location:
            raise _changed(table, result)
        return
    try:
        now = session.catalog.load(table.identifier)
    except (NotFoundError, NotATableError):
        return
    if now.metadata.table_uuid == table.metadata.table_uuid:  # check: not-registered-again
        raise _stopped(
            result,
            f"another process registered {table.identifier} again after {result.deleted_files} of its files were "
            "deleted",
            hint="if the files are to be deleted, run the command again",
        )


def _changed(table: Table, result: DropResult) -> CommitConflictError:
    return _stopped(
        result,
        f"another writer changed {table.identifier} after {result.deleted_files} of its files were deleted; the "
        "table still exists, without these files",
        hint="end its writers, and run the command again",
    )


def _stopped(result: DropResult, message: str, *, hint: str) -> CommitConflictError:
    error = CommitConflictError(message, hint=hint)
    error.result = result
    return error


def _steps(files: pa.Table) -> Iterator[tuple[str, list[str]]]:
    """Yield files with their kind in the order of deletion; a step's files are deleted in parallel.

    The current metadata file is the last one: as long as it exists, the table can be registered and dropped again.
    """
    for kind in (*KINDS, _METADATA):
        paths = files.filter(pc.equal(files["kind"], kind))["path"].to_pylist()
        last = paths[-1:] if kind == _METADATA else []
        yield kind, paths[: len(paths) - len(last)]
        yield kind, last


def _outcome(plan: DropPlan, status: Status, result: Facts = NoFacts()) -> Outcome:
    warnings = []
    if plan.spared:
        warnings.append(
            f"{plan.spared} files stay, because they are outside the table's folders or in a nested table's folders"
        )
    if plan.unreadable:
        warnings.append(
            f"{len(plan.unreadable)} manifests or manifest lists cannot be read, so the files that they name stay, "
            f"e.g. those of {plan.unreadable[0]}"
        )
    details = []
    if plan.files is not None and status is Status.DRY_RUN:
        counts = plan.files.group_by("kind").aggregate([("path", "count"), ("bytes", "sum")])
        rows = [
            [row["kind"].replace("_", " "), row["path_count"], row["bytes_sum"] or None]
            for row in counts.to_pylist()
        ]
        details = [Detail("files", ("kind", "files", "bytes"), rows)]
    return Outcome(
        status=status,
        base_snapshot_id=plan.table.metadata.current_snapshot_id,
        plan=plan.facts(),
        result=result,
        warnings=warnings,
        details=details,
    )
