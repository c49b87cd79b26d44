"""Delete orphan files or move them away, and move files back or delete them permanently."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.errors import LakeError, NotFoundError, OutOfTimeError, RefusedError
from lake.core.base.facts import Facts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.units import iso_time
from lake.core.io.storage.storage import Storage
from lake.core.maintain.orphans import trash
from lake.core.maintain.orphans.explanation import explained, left_alone
from lake.core.maintain.orphans.facts import (
    CleaningResult,
    PurgeResult,
    RestoreResult,
    TrashFacts,
)
from lake.core.maintain.orphans.kept_files import checkpoint_names
from lake.core.maintain.orphans.options import Mode
from lake.core.maintain.orphans.plan import KINDS, CleaningPlan
from lake.core.maintain.orphans.report import checkpoint_note
from lake.core.maintain.orphans.trash import Trash
from lake.core.table.catalogs.trust import storage_properties
from lake.core.transaction.garbage.file_deletion import Removal, Removed, remove_in_batches

if TYPE_CHECKING:
    from lake.core.io.objects.requests import ShouldContinue
    from lake.core.io.storage.storage import DeleteOutcome
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_COLUMNS = ("file", "kind", "bytes", "modified_at")
_RUN_COLUMNS = ("run", "moved_at", "files", "bytes")
_SHOWN = 20


def preview(session: Session, plan: CleaningPlan, *, explain: bool = False) -> Outcome:
    """Return the outcome that lists the orphan files and the runs whose files are still away.

    Args:
        session: the session of the invocation.
        plan: the plan.
        explain: also show why the other files are kept.
    """
    if plan.share > plan.options.max_share:
        session.warn(
            f"{plan.share:.0%} of the files or bytes are orphans: they are not removed without {Option.MAX_SHARE}"
        )
    runs = trash.find_runs(Trash.of(plan.table))
    details = _orphans(plan, every=session.settings.verbose)
    if runs:
        rows = [
            [
                run.run_id,
                iso_time(run.created_ms),
                run.files.num_rows,
                pc.sum(run.files["bytes"]).as_py() or 0,
            ]
            for run in runs
        ]
        details.append(Detail("files that were moved away", _RUN_COLUMNS, rows))
    status = Status.NOTHING_TO_DO if plan.is_empty else Status.DRY_RUN
    away = [
        TrashFacts(run_id=run.run_id, created_at=iso_time(run.created_ms), files=run.files.num_rows)
        for run in runs
    ]
    outcome = Outcome(
        status=status,
        base_snapshot_id=plan.table.metadata.current_snapshot_id,
        plan=replace(plan.facts(), trash=away, left_alone=left_alone(plan) if explain else None),
        details=details,
        notes=checkpoint_note(plan),
    )
    if not explain:
        return outcome
    return explained(plan).explain(outcome, verbose=session.settings.verbose)


def execute(session: Session, plan: CleaningPlan, run_id: str) -> Outcome:
    """Remove the plan's files from the table's folders; before each batch they are checked again.

    Args:
        session: the session of the invocation.
        plan: the plan.
        run_id: the id of this run, also the name of its folder in the trash.

    Raises:
        RefusedError: too large a part of the files would go, or the table is another one now.
        OutOfTimeError: the time of the run ended before all were removed; moved ones can be restored.
    """
    plan.check()  # check: share-of-orphans
    removed = Removed()
    if plan.is_empty:
        return _outcome(plan, Status.NOTHING_TO_DO, removed, run_id)
    table = plan.table
    files = pa.concat_tables(
        [plan.files.filter(pc.equal(plan.files["kind"], kind)) for kind in KINDS]
    )
    away, removal = None, Removal.deletion(table)
    if plan.options.mode is Mode.QUARANTINE:
        away = trash.write_list(table, run_id, files, session.clock.now_ms())
        removal = Removal(partial(_move_away, session, table, away), title="moving files")
    try:
        remove_in_batches(
            session,
            table,
            files,
            removed,
            recheck=lambda now, remaining: _still_orphans(plan, now, remaining),
            removal=removal,
        )
    except OutOfTimeError as error:
        error.operation_id = run_id if removed.files else None
        raise
    finally:
        if away is not None and not removed.files:
            with suppress(LakeError):
                trash.remove_unused_list(Trash.of(table), away)
    if removed.failed:
        session.warn(f"{len(removed.failed)} files could not be removed, e.g. {removed.failed[0]}")
    if removed.reached:
        session.warn(f"{removed.reached} files were kept, because the table references them now")
    status = Status.PARTIAL if removed.failed else Status.DONE
    return _outcome(plan, status, removed, run_id)


def _move_away(
    session: Session,
    table: Table,
    run: trash.TrashRun,
    batch: pa.Table,
    should_continue: ShouldContinue,
) -> DeleteOutcome:
    return trash.move_away(session, table, run, batch["path"].to_pylist(), should_continue)


def _still_orphans(plan: CleaningPlan, now: Table, files: pa.Table) -> pa.Table:
    """Return the files that the table, as it is now, does not reference, and no checkpoint either."""
    if now.metadata.table_uuid != plan.table.metadata.table_uuid:
        raise RefusedError(f"{now.identifier} is another table now; nothing more is removed")
    files = plan.reach.unreached(now.metadata, files)  # check: recheck-orphans
    needed = pa.concat_arrays(
        [
            plan.names.of(pa.array(now.logged_files, pa.string())),
            checkpoint_names(now, plan.names),
        ]
    )
    return files.filter(pc.invert(pc.is_in(plan.names.of(files["path"]), value_set=needed)))


def _outcome(plan: CleaningPlan, status: Status, removed: Removed, run_id: str) -> Outcome:
    quarantine = plan.options.mode is Mode.QUARANTINE
    result = CleaningResult(
        run_id=run_id,
        deleted=0 if quarantine else removed.files,
        quarantined=removed.files if quarantine else 0,
        bytes=removed.bytes,
        failed=len(removed.failed),
    )
    return Outcome(
        status=status,
        operation_id=run_id,
        base_snapshot_id=plan.table.metadata.current_snapshot_id,
        plan=plan.facts(),
        result=result,
        notes=checkpoint_note(plan),
    )


def restore(session: Session, table: Table, run_id: str) -> Outcome:
    """Move the files of a run back."""
    if trash.is_over(Trash.of(table), run_id):
        _warn_of_nothing(session, table.identifier, run_id)
        return _trash_outcome(Status.NOTHING_TO_DO, RestoreResult(run_id=run_id), table)
    restored = trash.restore(session, table, trash.read_list(Trash.of(table), run_id))
    if restored.present:
        session.warn(
            f"{len(restored.present)} files exist again and were not overwritten, e.g. {restored.present[0]}"
        )
    if restored.failed:
        session.warn(
            f"{len(restored.failed)} files could not be moved back, e.g. {restored.failed[0]}"
        )
    status = Status.PARTIAL if restored.failed or restored.present else Status.DONE
    result = RestoreResult(
        run_id=run_id,
        restored=len(restored.moved),
        present=len(restored.present),
        failed=len(restored.failed),
    )
    return _trash_outcome(status, result, table)


def _warn_of_nothing(session: Session, name: str, run_id: str) -> None:
    session.warn(
        f"run {run_id} has no files in the trash of {name}: it was restored or purged, or it is not a run of "
        "this table"
    )


def purge(
    session: Session, place: Trash, run_ids: Sequence[str], table: Table | None = None
) -> Outcome:
    """Delete the files of runs permanently.

    Args:
        session: the session of the invocation.
        place: the files that were moved away.
        run_ids: the ids of the runs.
        table: the table; None if it was dropped.
    """
    result = PurgeResult()
    for run_id in run_ids:
        if trash.is_over(place, run_id):
            _warn_of_nothing(session, place.name, run_id)
            continue
        # A folder without a list that can be read is not a run.
        outcome, size = trash.remove(place, trash.read_list(place, run_id))
        result.runs += 1
        result.purged += len(outcome.deleted)
        result.bytes += size
        result.failed += len(outcome.failed)
    status = Status.DONE if result.runs else Status.NOTHING_TO_DO
    if result.failed:
        session.warn(f"{result.failed} files could not be deleted")
        status = Status.PARTIAL
    return _trash_outcome(status, result, table)


def runs_older_than(place: Trash, limit_ms: int) -> list[str]:
    """Return the ids of the runs that moved files away before a time, oldest first.

    The empty folders of runs that were purged or restored are removed.
    """
    for run_id in place.list_runs():
        trash.is_over(place, run_id)
    return [run.run_id for run in trash.find_runs(place) if run.created_ms < limit_ms]


def trash_of_dropped(session: Session, name: str, location: str) -> Trash:
    """Return the trash that a table left that the catalog no longer has.

    Raises:
        NotFoundError: nothing was moved away there.
    """
    if not locations.has_scheme(location):
        location = f"file://{os.path.abspath(location)}"
    configured = {key: str(value) for key, value in session.catalog.configured.items()}
    roots = [location] if locations.ownable(location) else []
    place = Trash(Storage(storage_properties(configured), roots=roots), location, name)
    if not (roots and place.list_runs()):
        raise NotFoundError(
            f"table {name} does not exist, and no files were moved away to {place.folder}"
        )
    return place


def _trash_outcome(status: Status, result: Facts, table: Table | None) -> Outcome:
    return Outcome(
        status=status,
        base_snapshot_id=None if table is None else table.metadata.current_snapshot_id,
        result=result,
    )


def _orphans(plan: CleaningPlan, *, every: bool) -> list[Detail]:
    shown = plan.files if every else plan.files.slice(0, _SHOWN)
    rows = [
        [row["path"], row["kind"], row["bytes"], iso_time(row["modified_ms"])]
        for row in shown.to_pylist()
    ]
    return [Detail("orphan files", _COLUMNS, rows)] if rows else []
