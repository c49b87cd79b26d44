"""One load from its plan to its outcome; the kinds of load differ in what they write and commit.

A load resumes an earlier run of the same id, writes files, publishes manifests of them so that a killed run can be
resumed, commits, and removes what is not needed any more.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from lake.core.base import locations
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.plain import PlainData
from lake.core.base.progress import Meter, showing
from lake.core.data.schemas.evolution import schema_changes
from lake.core.data.schemas.remains import remains_in_folder
from lake.core.data.sorting.range_partitioning import SAMPLED_PER_RANGE, cuts, parts_of
from lake.core.data.sources.discovery import CSV, refuse_changed
from lake.core.engine.tasks import (
    MapFunction,
    ReduceFunction,
    Task,
    TaskFunction,
    TaskResult,
)
from lake.core.load.ingest.facts import IngestFacts
from lake.core.load.ingest.options import OVERWRITE, OVERWRITE_WHERE, REPLACE
from lake.core.load.ingest.payloads import ReceiveTask, SourceTask, WriteReport
from lake.core.load.ingest.plan import IngestPlan, origin_of, tasks_for, wanted_tasks
from lake.core.load.ingest.recovery import (
    as_staged,
    finish_earlier,
    guard_of,
    publish_manifests,
)
from lake.core.load.ingest.rejects import (
    RejectReport,
    rejects_schema,
    remove_rejects,
    removed_on_failure,
    temporary_files,
    write_rejects,
)
from lake.core.load.ingest.result import Landed, LoadResult, load_outcome
from lake.core.load.ingest.tasks import sample_rows
from lake.core.spec.properties.table_properties import HASH, RANGE
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.operations import Operation
from lake.core.transaction.session import Session
from lake.core.transaction.staging.failed_attempts import remove_lost_attempts
from lake.core.transaction.staging.operation_files import Staging, staged

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.update import TableRequirement

Read = TypeVar("Read", bound=SourceTask)
Receive = TypeVar("Receive", bound=PlainData)
Report = TypeVar("Report", bound=WriteReport)

_REDUCER_BYTES = 256 * 1024 * 1024
_MOST_REDUCERS = 200


class Load(ABC):
    """A kind of load: what it writes and commits. An instance belongs to one operation.

    Args:
        session: the engine, ids and progress.
        plan: what is read.
        operation_id: part of every file's name.
    """

    # The result of a load that another process has committed.
    nothing = LoadResult()

    def __init__(self, session: Session, plan: IngestPlan, operation_id: str) -> None:
        self.session = session
        self.plan = plan
        self.operation_id = operation_id

    @contextmanager
    def temporary_files(self) -> Iterator[None]:
        """Remove at the end the files that are needed only while the load runs; after a failure also the rejects."""
        settings = self.plan.reject_settings(self.operation_id)
        if settings is None:
            yield
            return
        with (
            temporary_files(self.session, self.plan.table, settings.name),
            removed_on_failure(self.session, self.plan.request.rejects_file),
        ):
            yield

    def keep_rejects(self, reports: Sequence[RejectReport], schema: Schema, rows_read: int) -> None:
        """Write the rows that tasks set aside to the file of rejects, if there are any.

        Raises:
            BadInputError: there are too many of them.
        """
        settings, path = (
            self.plan.reject_settings(self.operation_id),
            self.plan.request.rejects_file,
        )
        count = sum(report.rows for report in reports)
        if path is not None and self.plan.request.epoch is not None:
            remove_rejects(path)
        if settings is None or path is None or not count:
            return
        example = next(report.example for report in reports if report.example)
        settings.check(count, example)
        if self.plan.request.epoch is None:
            settings.check_share(count, rows_read, example)
        files = [file for report in reports for file in report.files]
        columns = rejects_schema(schema, with_columns=settings.with_columns)
        write_rejects(
            self.plan.table.storage, columns, files, path, places=self.plan.request.places
        )

    @abstractmethod
    def write(self) -> LoadResult:
        """Write the source's rows to files."""

    @property
    @abstractmethod
    def has_changes(self) -> bool:
        """Whether there is anything to commit, once `write` has returned."""

    @abstractmethod
    def commit(self, staging: Staging, result: LoadResult) -> Landed:
        """Commit what was written; with the option to stage, publish it instead."""

    def commit_files(
        self,
        staging: Staging,
        result: LoadResult,
        operation: Operation,
        *,
        published: bool,
        conditions: tuple[TableRequirement, ...] = (),
    ) -> Landed:
        """Commit files once; with ``published``, a later run can commit them if this one is killed."""
        remove_lost_attempts(self.session, self.plan.table, self.operation_id, result.paths)
        if published:
            publish_manifests(staging, self.plan, result.data, result.deletes)
        if self.plan.options.stage:
            return Landed(result)
        committed = self.commit_rows(operation, conditions=conditions)
        return Landed(result, committed, self.operation_id)

    def commit_rows(
        self,
        operation: Operation,
        *,
        table: Table | None = None,
        commit_id: str | None = None,
        conditions: tuple[TableRequirement, ...] = (),
    ) -> Committed:
        """Commit files with the run id or epoch, and with the new columns and the new table if there are any.

        Args:
            operation: the changes of the table's files.
            table: the table on which the operation was decided; None for the plan's.
            commit_id: the commit's operation id; None for the load's.
            conditions: additional conditions on the table.
        """
        session, plan = self.session, self.plan
        requirements, updates = (
            schema_changes(plan.table, plan.schema) if plan.evolves else ((), ())
        )
        if plan.table.creating:
            session.catalog.make_namespace(plan.table.identifier)
        request = CommitRequest(
            operation_id=commit_id or self.operation_id,
            branch=plan.options.branch,
            guard=guard_of(plan, self.operation_id),
            requirements=(*requirements, *conditions),
            updates=updates,
        )
        guard = plan.request.guard
        marks = {**origin_of(plan), **(guard.summary if guard else {})}
        with session.interrupts.last_commit():
            return commit_snapshot(session, table or plan.table, operation, request, summary=marks)


def run_load(
    session: Session,
    plan: IngestPlan,
    start: Callable[[IngestPlan, str], Load],
    shown: IngestFacts,
    operation_id: str | None = None,
) -> Outcome:
    """Execute a load and return its outcome.

    Args:
        session: see `Load`.
        plan: what is read.
        start: makes the load of the plan, whose new table then has its location, and an operation id.
        shown: the plan as it is shown.
        operation_id: part of the names of files; None for a new one.
    """
    if (finished := finish_earlier(session, plan)) is not None:
        return replace(finished, plan=shown)
    plan = _located(session, plan)
    if plan.table.creating and (remains := remains_in_folder(plan.table)) is not None:
        session.warn(remains)
    operation_id = operation_id or session.ids.uuid()
    load = start(plan, operation_id)
    with (
        _no_empty_folders(plan.table),
        staged(session, plan.table, operation_id) as staging,
        load.temporary_files(),
    ):
        result = load.write()
        # A watch has rules of its own for such files.
        if plan.request.epoch is None:
            refuse_changed(unit.read.source for unit in plan.units if unit.read.source is not None)
        if not load.has_changes:
            return load_outcome(plan, shown, Status.NOTHING_TO_DO, Landed(result))
        landed = load.commit(staging, result)
        if landed.committed is None and not plan.options.stage:
            return load_outcome(plan, shown, Status.NOTHING_TO_DO, landed)
        if landed.committed is None:
            return as_staged(load_outcome(plan, shown, Status.DONE, landed), staging)
    if landed.committed.already:
        # Another process committed the same run.
        staging.delete_unreferenced(landed.committed.table, landed.result.paths)
        landed = replace(landed, result=load.nothing)
        return load_outcome(plan, shown, Status.NOTHING_TO_DO, landed)
    staging.unpublish_manifests()
    return load_outcome(plan, shown, Status.DONE, landed)


def _located(session: Session, plan: IngestPlan) -> IngestPlan:
    """Return a plan whose new table is at its catalog's location; create the table's namespace if it is missing."""
    if plan.new_table is None or not plan.table.described:
        return plan
    table = plan.new_table.stage(session.catalog, plan.table.identifier, make_namespace=True)
    return replace(plan, table=table, schema=table.schema)


def warn_of_no_rows(session: Session, plan: IngestPlan) -> None:
    """Warn that the source has no rows, if the load would replace rows or infer types from them."""
    if plan.table.creating:
        if CSV in plan.formats:
            session.warn("the source has no rows, so the columns of its CSV files are text")
    elif plan.options.mode == REPLACE:
        session.warn("the source has no rows: nothing was replaced")
    elif plan.options.mode in {OVERWRITE, OVERWRITE_WHERE} and not plan.options.allow_empty:
        session.warn(
            f"the source has no rows: nothing was replaced ({Option.ALLOW_EMPTY} removes the old rows)"
        )


@contextmanager
def _no_empty_folders(table: Table) -> Iterator[None]:
    """Remove the empty folders of a new table from a local disk, if the table was not created."""
    try:
        yield
    finally:
        root = locations.parse(table.metadata.location)
        if table.creating and root.is_local:
            _remove_empty(root.path)


def _remove_empty(root: str) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        with suppress(OSError):  # not empty, so it is needed
            os.rmdir(folder)
    with suppress(OSError):
        os.rmdir(os.path.dirname(root))


# Reading the source


def row_receiver(plan: IngestPlan, operation_id: str) -> Callable[[int, bool], ReceiveTask]:
    """Return a function that makes the payloads of `receive_rows`."""
    write = plan.ordered_settings(operation_id)
    return lambda number, keyed: ReceiveTask(task=number, write=write, keyed=keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRun(Generic[Read, Receive, Report]):
    """The tasks that read the source of a load and write its rows.

    Args:
        plan: what to read, and how rows are distributed.
        operation_id: part of every file's name.
        task: makes a task's payload from the fields of a `SourceTask`.
        receiver: makes a reducer's payload from its number and whether rows contain their sort keys.
        write: reads rows and writes them in the same task.
        send: reads rows and sends them to reducers.
        receive: writes the rows that were sent to one reducer.
        together: whether some rows must be written by the same task; None to decide by the plan's distribution.
    """

    plan: IngestPlan
    operation_id: str
    task: Callable[..., Read]
    receiver: Callable[[int, bool], Receive]
    write: TaskFunction[Read, Report]
    send: MapFunction[Read]
    receive: ReduceFunction[Receive, Report]
    together: bool | None = None

    @property
    def needs_exchange(self) -> bool:
        """Whether some rows must be written by the same task."""
        return self.plan.distribution in {HASH, RANGE} if self.together is None else self.together

    def tasks(self, parallelism: int) -> list[Task[Read]]:
        """Return the tasks that read the source."""
        plan, tasks, first = self.plan, [], 0
        write = plan.ordered_settings(self.operation_id)
        for number, group in enumerate(tasks_for(plan, parallelism)):
            payload = self.task(
                task=number,
                write=write,
                units=[replace(unit.read, place=place) for place, unit in enumerate(group, first)],
                reading=plan.reading(group),
                must_match=plan.condition,
                rejects=plan.reject_settings(self.operation_id),
            )
            tasks.append(Task(payload, sum(unit.input_bytes for unit in group)))
            first += len(group)
        return tasks


def run_source(session: Session, run: SourceRun[Read, Receive, Report]) -> Iterator[Report]:
    """Read the source and write its rows to data files; yield the tasks' reports."""
    plan = run.plan
    engine = session.engine(plan.divisible_bytes)
    # In this process one writer sees all rows: each partition gets one file, and no row is sent.
    writers = plan.options.write_parallelism
    single = run.needs_exchange and (engine.name == "inline" if writers is None else writers == 1)
    tasks = run.tasks(1 if single else engine.parallelism)
    exchanged = run.needs_exchange and len(tasks) > 1
    phase = "reading" if exchanged else "loading"
    meter = Meter(phase, inputs=[task.input_bytes for task in tasks])
    results = (
        _exchange(session, run, tasks, meter)
        if exchanged
        else engine.run(tasks, run.write, storage=plan.table.storage, meter=meter)
    )
    yield from (result.value for result in showing(session.progress, meter, results))


def _exchange(
    session: Session,
    run: SourceRun[Read, Receive, Report],
    tasks: Sequence[Task[Read]],
    meter: Meter,
) -> Iterator[TaskResult[Report]]:
    """Send the rows of each partition, or range of sort keys, to one task, which writes them."""
    plan = run.plan
    engine = session.engine(plan.divisible_bytes)
    bounds: list[bytes] = []
    parts = 1
    if plan.distribution == RANGE:
        ranges = plan.options.write_parallelism or min(
            _MOST_REDUCERS, wanted_tasks(plan, engine.parallelism)
        )
        parts = parts_of(plan.divisible_bytes // ranges, ranges)
        bounds = _bounds(session, plan, tasks, ranges * parts)
        count = len(bounds) // parts + 1
    else:
        by_size = -(-plan.input_bytes // _REDUCER_BYTES)
        count = plan.options.write_parallelism or max(
            engine.parallelism, min(_MOST_REDUCERS, by_size)
        )
    return engine.exchange(
        [
            Task(
                replace(task.payload, reducers=count, bounds=bounds, parts=parts), task.input_bytes
            )
            for task in tasks
        ],
        run.send,
        run.receive,
        [run.receiver(number, bool(bounds)) for number in range(count)],
        storage=plan.table.storage,
        meter=meter,
        parts=parts,
    )


def _bounds(
    session: Session, plan: IngestPlan, tasks: Sequence[Task[Read]], ranges: int
) -> list[bytes]:
    """Return the bounds between ranges of sort keys, from a sample of the keys."""
    size = max(SAMPLED_PER_RANGE, SAMPLED_PER_RANGE * ranges // len(tasks))
    sampling: list[Task[SourceTask]] = [
        Task(replace(task.payload, sampled=size), task.input_bytes) for task in tasks
    ]
    meter = Meter("sampling sort keys", inputs=[task.input_bytes for task in sampling])
    engine, storage = session.engine(plan.divisible_bytes), plan.table.storage
    results = engine.run(sampling, sample_rows, storage=storage, meter=meter)
    # In the order of the tasks, so that the same input gets the same bounds.
    samples = sorted(showing(session.progress, meter, results), key=lambda result: result.task)
    return cuts([result.value for result in samples], ranges)
