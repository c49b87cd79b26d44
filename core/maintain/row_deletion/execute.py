"""Execute a deletion: find the rows, write what deletes them, and commit once.

A lost race is planned again on the new head, so that rows that were added meanwhile are considered too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.progress import Meter, showing
from lake.core.data.rows.live_slices import parts_by_rows
from lake.core.data.rows.reader import ReadSettings
from lake.core.data.rows.writer import WriteSettings
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.engine.tasks import Task
from lake.core.maintain.row_deletion.facts import DeletionResult
from lake.core.maintain.row_deletion.plan import DeletionPlan, plan_deletion
from lake.core.maintain.row_deletion.tasks import COUNT, DeletionTask, delete_rows
from lake.core.spec.expressions.filters import filter_columns
from lake.core.spec.properties.table_properties import COPY_ON_WRITE
from lake.core.spec.types.arrow_schema import moved_schema, top_columns
from lake.core.spec.types.sort_orders import partition_fields, table_order
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.operations import DeleteKey, RowDelta
from lake.core.transaction.replanning import Start, replanned
from lake.core.transaction.staging.failed_attempts import remove_lost_attempts
from lake.core.transaction.staging.operation_files import staged
from lake.core.transaction.superseded_deletes import superseded_deletes

if TYPE_CHECKING:
    from lake.core.data.rows.reader import FileSlice
    from lake.core.maintain.row_deletion.options import DeletionOptions
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.manifests.data_files import DataFile
    from lake.core.transaction.removals import Removals
    from lake.core.transaction.session import Session


@dataclass(slots=True)
class _Deleted:
    """The rows that were found, and the files that were written to delete them.

    Args:
        whole: the rows of each file that goes whole and had to be counted, with its number.
        partly: the rows of each other file.
        emptied: with copy-on-write, how many files with matching rows contain no other row.
        kept: with copy-on-write, the new data files.
        deletes: in the other mode, the new delete files.
    """

    whole: dict[int, int] = field(default_factory=dict)
    partly: list[tuple[FileSlice, int]] = field(default_factory=list)
    emptied: int = 0
    kept: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)

    @property
    def hit(self) -> list[str]:
        """The data files of which some rows go."""
        return [file.path for file, rows in self.partly if rows]

    @property
    def paths(self) -> list[str]:
        """The files that were written."""
        return [file.path for file in (*self.kept, *self.deletes)]


def preview(session: Session, plan: DeletionPlan) -> Outcome:
    """Return the outcome of a dry run; reads rows only if they are to be counted."""
    if plan.already:
        return _outcome(plan, Status.NOTHING_TO_DO)
    if plan.options.count:
        plan = replace(plan, removals=_counted(plan, _run(session, plan, COUNT, "")))
    detail, notes = plan.removals.shown(verbose=session.settings.verbose)
    details = [detail] if any(item.partition for item in plan.removals.partitions) else []
    return _outcome(plan, Status.DRY_RUN, details=details, notes=notes if details else [])


def execute(session: Session, table: Table, options: DeletionOptions, operation_id: str) -> Outcome:
    """Plan, write and commit; a plan that another writer invalidated is made again.

    Raises:
        RefusedError: more rows match than may be deleted; nothing was changed.
        CommitConflictError: other writers changed what is deleted each time; nothing was changed.
        CommitUnknownError: the commit may have succeeded; no file was deleted.
    """

    def attempt(start: Start) -> Outcome:
        _, table, operation_id = start
        session.interrupts.checkpoint()
        plan = plan_deletion(session, table, options)
        if plan.already or plan.is_empty:
            return _outcome(plan, Status.NOTHING_TO_DO)
        _refuse_too_many(session, plan)
        # A failed attempt's files are removed, unless the outcome of its commit is not known.
        with staged(session, table, operation_id) as staging:
            deleted = _run(session, plan, plan.mode, operation_id)
            if not (plan.whole.count or deleted.hit):
                return _outcome(plan, Status.NOTHING_TO_DO)
            remove_lost_attempts(session, table, operation_id, deleted.paths)
            committed = _commit(session, plan, deleted, operation_id)
            if committed.already:
                # Another process committed the same run.
                staging.delete_unreferenced(committed.table, deleted.paths)
                return _outcome(replace(plan, already=True), Status.NOTHING_TO_DO)
        return _done(plan, deleted, committed, operation_id)

    return replanned(attempt, Start(session, table, operation_id), Start.renewed)


def _refuse_too_many(session: Session, plan: DeletionPlan) -> None:
    """Refuse a deletion of more rows than the options allow; the rows are counted if metadata does not decide."""
    most = plan.options.max_rows
    if most is None or plan.removals.rows_at_most <= most:  # check: max-rows-of-deletion
        return
    rows = plan.removals.rows_at_least
    if rows <= most:
        rows = _counted(plan, _run(session, plan, COUNT, "")).rows_at_most
    if rows > most:
        raise RefusedError(
            f"{rows:,} rows match, and {Option.MAX_ROWS} allows {most:,}: nothing was deleted",
            hint=f"look at them with lake scan, or raise {Option.MAX_ROWS}",
        )


# Reading and writing


def _run(session: Session, plan: DeletionPlan, mode: str, operation_id: str) -> _Deleted:
    """Count the rows that metadata does not show, and delete those of files that stay."""
    deleted = _Deleted()
    tasks: list[tuple[bool, slice, Task[DeletionTask]]] = []
    for whole in (True, False):
        tasks += _tasks(session, plan, COUNT if whole else mode, operation_id, whole=whole)
    if not tasks:
        return deleted
    meter = Meter("finding the rows", inputs=[task.input_bytes for _, _, task in tasks])
    engine = session.engine(plan.input_bytes)
    storage = plan.table.storage
    results = engine.run([task for _, _, task in tasks], delete_rows, storage=storage, meter=meter)
    numbers = plan.numbers(whole=True)
    for result in showing(session.progress, meter, results):
        whole, places, task = tasks[result.task]
        report = result.value
        if whole:
            deleted.whole |= dict(zip(numbers[places].tolist(), report.rows, strict=True))
        else:
            deleted.partly += zip(task.payload.files, report.rows, strict=True)
        deleted.emptied += sum(not rows for rows in report.left)
        deleted.kept += report.kept
        deleted.deletes += report.deletes
    return deleted


def _tasks(
    session: Session, plan: DeletionPlan, mode: str, operation_id: str, *, whole: bool
) -> Iterator[tuple[bool, slice, Task[DeletionTask]]]:
    table, files = plan.table, plan.slices(whole=whole)
    if not files:
        return
    live, numbers = plan.whole if whole else plan.partly, plan.numbers(whole=whole)
    writing = _writing(plan, operation_id)
    parallelism = session.engine(plan.input_bytes).parallelism
    columns = top_columns(table.schema, sorted(filter_columns(plan.condition)))
    # Row ids of format version 3 are copied with their rows.
    # check: row-ids-of-deletion
    copied = moved_schema(table.schema, table.metadata) if mode == COPY_ON_WRITE else None
    for number, places in enumerate(parts_by_rows(files, parallelism)):
        deletes = live.deletes_of(numbers[places])
        payload = DeletionTask(
            task=number,
            files=files[places],
            reading=ReadSettings.of(
                table, projection=columns, row_filter=plan.condition, deletes=deletes
            ),
            mode=mode,
            format_version=table.metadata.format_version,
            writing=writing if copied is None else replace(writing, schema=copied),
            copying=None
            if copied is None
            else ReadSettings.of(table, projection=copied, deletes=deletes),
        )
        yield whole, places, Task(payload, sum(file.size_bytes for file in files[places]))


def _writing(plan: DeletionPlan, operation_id: str) -> WriteSettings:
    """Return how files are written: data files in the table's order."""
    metadata, settings = plan.table.metadata, WriteSettings.of(plan.table, operation_id)
    fields = table_order(metadata, plan.table.schema)
    if plan.mode != COPY_ON_WRITE or not fields:
        return settings
    order = RowOrder(fields=(*partition_fields(plan.table.spec), *fields))
    return replace(settings, order=order, sort_order_id=metadata.default_sort_order_id)


# The commit


def _commit(
    session: Session, plan: DeletionPlan, deleted: _Deleted, operation_id: str
) -> Committed:
    copies = plan.mode == COPY_ON_WRITE
    superseded: list[DeleteKey] = []
    if not copies:
        superseded = superseded_deletes(plan.partly, deleted.hit, deleted.deletes)
    operation = RowDelta(
        added=deleted.kept,
        deletes=deleted.deletes,
        removed_paths=[*plan.whole.paths, *(deleted.hit if copies else ())],
        replaced_deletes=superseded,
        base_snapshot_id=plan.base_snapshot_id,
        conflict_filter=plan.condition,
        isolation=plan.isolation,  # check: isolation-of-deletion
        # They would not apply to rows that were copied.
        ignore_equality=not deleted.kept,  # check: equality-deletes-of-copied-rows
    )
    guard = plan.options.guard
    request = CommitRequest(operation_id=operation_id, branch=plan.options.branch, guard=guard)
    marks = guard.summary if guard else {}
    with session.interrupts.last_commit():
        return commit_snapshot(session, plan.table, operation, request, summary=marks)


# The outcome


def _counted(plan: DeletionPlan, deleted: _Deleted) -> Removals:
    """Return what goes, with the numbers of rows that were counted."""
    files = dict(
        zip([number for number, _ in plan.uncounted], plan.slices(whole=True), strict=True)
    )
    whole = [
        (plan.partition_of(files[number]), most - deleted.whole[number])
        for number, most in plan.uncounted
    ]
    partly = [(plan.partition_of(file), rows) for file, rows in deleted.partly if rows]
    return plan.removals.counted(whole, partly)


def _done(
    plan: DeletionPlan, deleted: _Deleted, committed: Committed, operation_id: str
) -> Outcome:
    rewritten = 0
    if plan.mode == COPY_ON_WRITE:
        rewritten = len(deleted.hit) - deleted.emptied
    snapshot = committed.table.metadata.snapshot_by_id(committed.snapshot_id)
    outcome = _outcome(
        plan,
        Status.DONE,
        operation_id=operation_id,
        snapshot_ids=committed.snapshot_ids,
        result=DeletionResult(
            rows=_counted(plan, deleted).rows_at_most,
            data_files_removed=plan.whole.count + deleted.emptied,
            data_files_rewritten=rewritten,
            delete_files=len(deleted.deletes),
        ),
    )
    # Commits of others that did not conflict may be between the plan and the deletion.
    parent = snapshot.parent_snapshot_id if snapshot else plan.base_snapshot_id
    return replace(outcome, base_snapshot_id=parent)


def _outcome(plan: DeletionPlan, status: Status, **values: Any) -> Outcome:
    return Outcome(
        status=status,
        base_snapshot_id=plan.base_snapshot_id,
        plan=plan.facts(),
        **values,
    )
