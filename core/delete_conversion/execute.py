"""Execute a conversion: write position deletes or vectors, and remove the equality deletes in the same row delta."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lake.core.commit.commit import CommitRequest, Committed, commit_snapshots
from lake.core.commit.conflicts import CommitsSince, refuse_old_data
from lake.core.commit.operations import DeleteKey, RowDelta, SnapshotStep
from lake.core.commit.preconditions import require_writable
from lake.core.delete_conversion.plan import ConversionPlan, plan_conversion
from lake.core.delete_conversion.tasks import ConvertReport, ConvertTask, convert
from lake.core.deletes.writers import check_delete_files
from lake.core.engine.tasks import Task
from lake.core.errors import CommitConflictError, LakeError
from lake.core.manifests.data_files import POSITION_DELETES, DataFile
from lake.core.outcome import Outcome, Status
from lake.core.progress import Meter, showing
from lake.core.properties.table_properties import SNAPSHOT
from lake.core.rows.reader import ReadSettings
from lake.core.rows.writer import WriteSettings
from lake.core.snapshots import ancestry
from lake.core.snapshots.delete_scopes import PUFFIN
from lake.core.staging.failed_attempts import remove_lost_attempts
from lake.core.staging.operation_files import staged

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.session import Session

_ROUNDS = 3
_TASK_ROWS = 4_000_000
_TASK_FILES = 500


def preview(plan: ConversionPlan) -> Outcome:
    """Return a dry run's outcome."""
    return _outcome(plan, Status.DRY_RUN, None)


def execute(session: Session, table: Table, branch: str, operation_id: str) -> Outcome:
    """Plan, convert and commit; a plan that another writer invalidated is made again.

    Raises:
        CommitConflictError: other writers changed the data files or deletes each time; nothing was changed.
        CommitUnknownError: the commit may have succeeded; no file was deleted.
    """
    require_writable(table, branch)
    for remaining in reversed(range(_ROUNDS)):
        session.interrupts.checkpoint()
        plan = plan_conversion(table, branch)
        if not plan.equality:
            return _outcome(plan, Status.NOTHING_TO_DO, None)
        try:
            # A failed attempt's files are removed, unless the outcome of its commit is not known.
            with staged(session, table, operation_id):
                done = _convert(session, plan, operation_id)
                committed = _commit(session, plan, done, operation_id)
        except CommitConflictError:
            if not remaining:
                raise
            table, operation_id = table.refreshed(), session.ids.uuid()
            continue
        return _outcome(plan, Status.DONE, done, operation_id, committed.snapshot_ids)
    raise AssertionError("the last round returns or raises")


@dataclass(slots=True)
class _Converted:
    """The reports of all tasks."""

    hit: list[str] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    rows: int = 0

    def add(self, report: ConvertReport) -> None:
        self.hit += report.hit
        self.deletes += report.deletes
        self.rows += report.rows


def _convert(session: Session, plan: ConversionPlan, operation_id: str) -> _Converted:
    writing = WriteSettings.of(plan.table, operation_id)
    check_delete_files(writing)
    done = _Converted()
    if not plan.files:
        return done
    engine = session.engine(plan.input_bytes)
    tasks = list(_tasks(plan, writing, engine.parallelism))
    meter = Meter("finding the deleted rows", inputs=[task.input_bytes for task in tasks])
    results = engine.run(tasks, convert, storage=plan.table.storage, meter=meter)
    reported = 0
    for result in showing(session.progress, meter, results):
        done.add(result.value)
        reported += 1
    if reported != len(tasks):
        raise LakeError(f"the engine lost {len(tasks) - reported} tasks; nothing was committed")
    written = [file.path for file in done.deletes]
    remove_lost_attempts(session, plan.table, operation_id, written)
    return done


def _tasks(
    plan: ConversionPlan, writing: WriteSettings, parallelism: int
) -> Iterator[Task[ConvertTask]]:
    """Yield tasks for adjacent data files; a data file is read by one task, as it has one vector."""
    rows = sum(file.record_count for file in plan.files)
    most = min(_TASK_ROWS, -(-rows // parallelism))
    start = taken = number = 0
    for place, file in enumerate(plan.files):
        if place > start and (taken + file.record_count > most or place - start >= _TASK_FILES):
            yield _task(plan, writing, number, slice(start, place))
            start, taken, number = place, 0, number + 1
        taken += file.record_count
    yield _task(plan, writing, number, slice(start, len(plan.files)))


def _task(
    plan: ConversionPlan, writing: WriteSettings, number: int, places: slice
) -> Task[ConvertTask]:
    files = plan.files[places]
    payload = ConvertTask(
        task=number,
        files=files,
        reading=ReadSettings.of(
            plan.table,
            projection=plan.table.schema,
            deletes=_deletes_of(plan, plan.numbers[places]),
        ),
        format_version=plan.table.metadata.format_version,
        writing=writing,
    )
    return Task(payload, sum(file.size_bytes for file in files))


def _deletes_of(plan: ConversionPlan, numbers: Sequence[int]) -> tuple[Any, ...]:
    return plan.found.deletes_of(np.array(numbers, np.int64)) if plan.found else ()


def _commit(
    session: Session, plan: ConversionPlan, done: _Converted, operation_id: str
) -> Committed:
    base = plan.base.snapshot_id if plan.base else None
    step = SnapshotStep(
        operation=RowDelta(
            added=[],
            deletes=done.deletes,
            replaced_deletes=[
                *(DeleteKey(item.path) for item in plan.equality),
                *_superseded(plan, done),
            ],
            base_snapshot_id=base,
            isolation=SNAPSHOT,
            ignore_equality=True,
        )
    )

    def decide(now: Table) -> Sequence[SnapshotStep]:
        head = ancestry.head_id(now.metadata, plan.branch)
        # To a new data file none of the removed deletes applies, but to one that keeps an older sequence number.
        refuse_old_data(CommitsSince(now.storage, now.metadata, head, base))
        return (step,)

    request = CommitRequest(operation_id=operation_id, branch=plan.branch)
    return commit_snapshots(session, plan.table, decide, request)


def _superseded(plan: ConversionPlan, done: _Converted) -> list[DeleteKey]:
    """Return the vectors, and the delete files for one data file, whose positions new vectors contain."""
    if not any(file.format == PUFFIN for file in done.deletes):
        return []
    hit = set(done.hit)
    return [
        DeleteKey(item.path, item.content_offset)
        for item in _deletes_of(plan, plan.numbers)
        if item.content == POSITION_DELETES and item.referenced_data_file in hit
    ]


def _outcome(
    plan: ConversionPlan,
    status: Status,
    done: _Converted | None,
    operation_id: str | None = None,
    snapshot_ids: tuple[int, ...] = (),
) -> Outcome:
    result: dict[str, Any] = {}
    if done is not None:
        result = {
            "removed_equality_deletes": len(plan.equality),
            "added_deletes": len(done.deletes),
            "changed_data_files": len(done.hit),
            "deleted_rows": done.rows,
        }
    return Outcome(
        command="deletes",
        table=plan.table.identifier,
        branch=plan.branch,
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.base.snapshot_id if plan.base else None,
        snapshot_ids=snapshot_ids,
        plan=plan.facts(),
        result=result,
    )
