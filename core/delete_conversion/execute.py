"""Execute a plan for delete files: write position deletes or vectors, and remove the others in the same snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lake.core.commit.commit import CommitRequest, Committed, commit_snapshots
from lake.core.commit.conflicts import CommitsSince, refuse_old_data
from lake.core.commit.operations import SnapshotStep
from lake.core.commit.preconditions import require_writable
from lake.core.delete_conversion.plan import DeletePlan, Written
from lake.core.delete_conversion.tasks import ConvertTask, convert
from lake.core.deletes.writers import check_delete_files
from lake.core.engine.tasks import Task
from lake.core.errors import CommitConflictError, LakeError
from lake.core.outcome import Outcome, Status
from lake.core.progress import Meter, showing
from lake.core.rows.reader import ReadSettings
from lake.core.rows.writer import WriteSettings
from lake.core.snapshots import ancestry
from lake.core.staging.failed_attempts import remove_lost_attempts
from lake.core.staging.operation_files import staged

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.session import Session

_ROUNDS = 3


def preview(plan: DeletePlan) -> Outcome:
    """Return a dry run's outcome."""
    return _outcome(plan, Status.DRY_RUN, None)


def execute(
    session: Session,
    table: Table,
    branch: str,
    operation_id: str,
    make_plan: Callable[[Table], DeletePlan],
) -> Outcome:
    """Plan, write and commit; a plan that another writer invalidated is made again.

    Raises:
        CommitConflictError: other writers changed the data files or deletes each time; nothing was changed.
        CommitUnknownError: the commit may have succeeded; no file was deleted.
    """
    require_writable(table, branch)
    for remaining in reversed(range(_ROUNDS)):
        session.interrupts.checkpoint()
        plan = make_plan(table)
        if not plan.chosen:
            return _outcome(plan, Status.NOTHING_TO_DO, None)
        try:
            # A failed attempt's files are removed, unless the outcome of its commit is not known.
            with staged(session, table, operation_id):
                written = _write(session, plan, operation_id)
                committed = _commit(session, plan, written, operation_id)
        except CommitConflictError:
            if not remaining:
                raise
            table, operation_id = table.refreshed(), session.ids.uuid()
            continue
        return _outcome(plan, Status.DONE, written, operation_id, committed.snapshot_ids)
    raise AssertionError("the last round returns or raises")


def _write(session: Session, plan: DeletePlan, operation_id: str) -> Written:
    writing = WriteSettings.of(plan.table, operation_id)
    check_delete_files(writing)
    written = Written()
    if not plan.files:
        return written
    engine = session.engine(plan.input_bytes)
    parts = enumerate(plan.parts(engine.parallelism))
    tasks = [_task(plan, writing, number, places) for number, places in parts]
    meter = Meter("finding the deleted rows", inputs=[task.input_bytes for task in tasks])
    results = engine.run(tasks, convert, storage=plan.table.storage, meter=meter)
    reported = 0
    for result in showing(session.progress, meter, results):
        report = result.value
        written.hit += report.hit
        written.deletes += report.deletes
        written.rows += report.rows
        reported += 1
    if reported != len(tasks):
        raise LakeError(f"the engine lost {len(tasks) - reported} tasks; nothing was committed")
    paths = [file.path for file in written.deletes]
    remove_lost_attempts(session, plan.table, operation_id, paths)
    return written


def _task(
    plan: DeletePlan, writing: WriteSettings, number: int, places: slice
) -> Task[ConvertTask]:
    files = plan.files[places]
    deletes = plan.deletes_of(places)
    payload = ConvertTask(
        task=number,
        files=files,
        reading=ReadSettings.of(plan.table, projection=plan.table.schema, deletes=deletes),
        compares_keys=plan.compares_keys,
        format_version=plan.table.metadata.format_version,
        granularity=plan.granularity,
        writing=writing,
    )
    read = files if plan.compares_keys else deletes
    return Task(payload, sum(file.size_bytes for file in read))


def _commit(session: Session, plan: DeletePlan, written: Written, operation_id: str) -> Committed:
    step = SnapshotStep(operation=plan.operation(written))

    def decide(now: Table) -> Sequence[SnapshotStep]:
        head = ancestry.head_id(now.metadata, plan.branch)
        # To a new data file none of the removed deletes applies, but to one that keeps an older sequence number.
        refuse_old_data(CommitsSince(now.storage, now.metadata, head, plan.base_id))
        return (step,)

    request = CommitRequest(operation_id=operation_id, branch=plan.branch)
    return commit_snapshots(session, plan.table, decide, request)


def _outcome(
    plan: DeletePlan,
    status: Status,
    written: Written | None,
    operation_id: str | None = None,
    snapshot_ids: tuple[int, ...] = (),
) -> Outcome:
    return Outcome(
        command="deletes",
        table=plan.table.identifier,
        branch=plan.branch,
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.base_id,
        snapshot_ids=snapshot_ids,
        plan=plan.facts(),
        result={} if written is None else plan.result(written),
    )
