"""Execute a plan for delete files: write position deletes or vectors, and remove the others in the same snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base.errors import CommitUnknownError, LakeError
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.base.progress import Meter, showing
from lake.core.data.deletes.writers import check_delete_files
from lake.core.data.rows.reader import ReadSettings
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.tasks import Task
from lake.core.maintain.delete_conversion.explanation import explained, left_alone
from lake.core.maintain.delete_conversion.facts import ConversionResult, RewriteResult
from lake.core.maintain.delete_conversion.plan import DeletePlan, Written
from lake.core.maintain.delete_conversion.tasks import ConvertTask, convert
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshots
from lake.core.transaction.commit.conflicts import CommitsSince, refuse_old_data
from lake.core.transaction.commit.operations import SnapshotStep
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.commit.work_limits import WorkLimits
from lake.core.transaction.replanning import Start, replanned
from lake.core.transaction.staging.failed_attempts import remove_lost_attempts
from lake.core.transaction.staging.operation_files import staged

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.manifests.data_files import DeleteFile
    from lake.core.transaction.session import Session

_ROUNDS = 3


def preview(
    plan: DeletePlan,
    limits: WorkLimits | None = None,
    *,
    explain: bool = False,
    verbose: bool = False,
) -> Outcome:
    """Return a dry run's outcome.

    Args:
        plan: the plan.
        limits: the limits of one run.
        explain: also show why delete files are left alone.
        verbose: with `explain`, also list them.
    """
    part = plan.limited(limits.max_files if limits else None)
    outcome = _outcome(part, Status.DRY_RUN)
    if not explain:
        return outcome
    facts = replace(part.facts(), left_alone=left_alone(plan, part))
    return explained(plan, part).explain(replace(outcome, plan=facts), verbose=verbose)


def execute(
    session: Session,
    table: Table,
    branch: str,
    operation_id: str,
    make_plan: Callable[[Table], DeletePlan],
    limits: WorkLimits | None = None,
) -> Outcome:
    """Plan, write and commit; a plan that another writer invalidated is made again.

    With partial progress, each commit has a plan of its own, made on the snapshot before it.

    Raises:
        CommitConflictError: other writers changed the data files or deletes each time; nothing was changed.
        CommitUnknownError: the commit may have succeeded; no file was deleted.
    """
    require_writable(table, branch)
    run = _Run(session, operation_id, make_plan, limits or WorkLimits())
    stopped = False
    try:
        run.all_commits(table)
    except CommitUnknownError:
        raise
    except LakeError as error:
        if not run.snapshot_ids:
            raise
        # What was committed stays committed; the files of the last part were removed.
        stopped = True
        done = len(run.snapshot_ids)
        session.warn(f"stopped after {done} commit{'s' * (done > 1)}: {error.message}")
    return run.outcome(stopped=stopped)


class _Run:
    """One execution: as many commits as the limits allow."""

    def __init__(
        self,
        session: Session,
        operation_id: str,
        make_plan: Callable[[Table], DeletePlan],
        limits: WorkLimits,
    ) -> None:
        self.snapshot_ids: list[int] = []
        self._session = session
        self._operation_id = operation_id
        self._make_plan = make_plan
        self._limits = limits
        self._shown: DeletePlan | None = None
        # The delete files of the first plan that are not yet removed.
        self._remaining: frozenset[DeleteFile] = frozenset()
        self._files = 0
        self._per_commit = 0
        self._result: ConversionResult | RewriteResult | None = None

    def all_commits(self, table: Table) -> None:
        """Commit parts of the work until nothing remains or a limit is reached.

        Raises:
            OutOfTimeError: the time of the run has ended after a commit, and something remains.
        """
        now: Table | None = table
        while now is not None and len(self.snapshot_ids) < self._limits.commits:
            now = self._commit_once(now)
            if now is not None:
                self._session.require_time("what is left is for the next run")
            if self._limits.max_files is not None and self._files >= self._limits.max_files:
                return

    def _commit_once(self, table: Table) -> Table | None:
        """Do the next part; return the table after its commit, or None if nothing remains to be done."""
        operation_id = self._session.ids.uuid() if self.snapshot_ids else self._operation_id
        start = Start(self._session, table, operation_id)
        return replanned(self._attempt, start, Start.renewed, rounds=_ROUNDS)

    def _attempt(self, start: Start) -> Table | None:
        _, table, operation_id = start
        self._session.interrupts.checkpoint()
        plan = self._make_plan(table)
        if not self.snapshot_ids:
            self._begin(plan)
        part = plan.limited(self._most())
        # A part of a conversion may end no delete file; its data files need not be read again.
        if not (part.chosen or part.size) or (self.snapshot_ids and not self._left(plan)):
            self._remaining = self._left(plan)
            return None
        # A failed attempt's files are removed, unless the outcome of its commit is not known.
        with staged(self._session, table, operation_id):
            written = _write(self._session, part, operation_id)
            committed = _commit(self._session, part, written, operation_id)
        if not self.snapshot_ids:
            self._operation_id = operation_id
        self.snapshot_ids += committed.snapshot_ids
        self._files += part.size
        self._result = part.result(self._result or NoFacts(), written)
        self._remaining = self._left(plan) - frozenset(part.chosen)
        return committed.table if self._remaining and part.size else None

    def _begin(self, plan: DeletePlan) -> None:
        self._shown = plan.limited(self._limits.max_files)
        self._remaining = frozenset(plan.chosen)
        self._per_commit = max(plan.least, self._limits.per_commit(self._shown.size))

    def _left(self, plan: DeletePlan) -> frozenset[DeleteFile]:
        """Return the delete files of the first plan that a later one still contains."""
        return self._remaining & frozenset(plan.chosen)

    def _most(self) -> int | None:
        """Return the greatest size of the next part; None for no limit."""
        rest = None if self._limits.max_files is None else self._limits.max_files - self._files
        if len(self.snapshot_ids) + 1 >= self._limits.commits:
            return rest
        return self._per_commit if rest is None else min(self._per_commit, rest)

    def outcome(self, *, stopped: bool) -> Outcome:
        """Return what was done, with the delete files of the first plan that remain."""
        assert self._shown is not None  # noqa: S101 - the first plan was made
        if self._result is None:
            return _outcome(self._shown, Status.NOTHING_TO_DO)
        self._result.remaining_deletes = len(self._remaining)
        status = Status.PARTIAL if stopped else Status.DONE
        return _outcome(
            self._shown, status, self._result, self._operation_id, tuple(self.snapshot_ids)
        )


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
    for result in showing(session.progress, meter, results):
        report = result.value
        written.hit += report.hit
        written.deletes += report.deletes
        written.rows += report.rows
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
    step = SnapshotStep(operation=plan.operation(written), summary=plan.summary)

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
    result: Facts = NoFacts(),
    operation_id: str | None = None,
    snapshot_ids: tuple[int, ...] = (),
) -> Outcome:
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.base_id,
        snapshot_ids=snapshot_ids,
        plan=plan.facts(),
        result=result,
    )
