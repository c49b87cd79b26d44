"""Carry an ingest out: rows to files on the engine, files to one snapshot, nothing left on failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.commit.commit import Committed, commit_snapshot
from lake.core.commit.operations import AppendFiles, Operation, OverwriteFiles, ReplacePartitions
from lake.core.engine.tasks import (
    Engine,
    MapFunction,
    ReduceFunction,
    Task,
    TaskFunction,
    TaskResult,
)
from lake.core.errors import LakeError
from lake.core.ingest.payloads import KeepTask, ReceiveTask, SourceTask
from lake.core.ingest.plan import (
    APPEND,
    OVERWRITE,
    OVERWRITE_WHERE,
    REPLACE,
    IngestPlan,
    describe,
    tasks_for,
    wanted_tasks,
)
from lake.core.ingest.recovery import as_staged, publish_manifests, run_id_of, settle
from lake.core.ingest.schema_evolution import schema_changes
from lake.core.ingest.tasks import (
    receive_rows,
    sample_rows,
    send_rows,
    write_kept,
    write_rows,
)
from lake.core.manifests.data_files import DataFile
from lake.core.outcome import Outcome, Status
from lake.core.plain import PlainData
from lake.core.properties.table_properties import DELETE_ISOLATION, HASH, RANGE
from lake.core.rows.reader import FileSlice, ReadSettings
from lake.core.session import Session
from lake.core.snapshots.run_ids import RUN_ID
from lake.core.sorting.range_partitioning import SAMPLED_PER_RANGE, cuts, encoded
from lake.core.sources.discovery import CSV
from lake.core.staging.failed_attempts import remove_lost_attempts
from lake.core.staging.operation_files import staged

if TYPE_CHECKING:
    from pyiceberg.table.update import TableRequirement

Read = TypeVar("Read", bound=SourceTask)
Receive = TypeVar("Receive", bound=PlainData)

_REDUCER_BYTES = 256 * 1024 * 1024
_MOST_REDUCERS = 200
# The numbers of tasks that rewrite start here, so that no name meets a loading task's.
_FIRST_KEEPER = 50_000


@dataclass(slots=True)
class _Written:
    """Files of new rows, and files of rows that an overwrite keeps, with the paths that those replace."""

    files: list[DataFile] = field(default_factory=list)
    rows_read: int = 0
    kept_files: list[DataFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def all_files(self) -> list[DataFile]:
        return [*self.files, *self.kept_files]


def preview(plan: IngestPlan) -> Outcome:
    """Describe a plan without carrying it out."""
    facts = describe(plan)
    columns = [[item["name"], item["type"], item["required"]] for item in facts["schema"]]
    details: list[tuple[str, list[str], list[list[Any]]]] = [
        ("columns", ["column", "type", "required"], columns)
    ]
    if plan.defaults:
        filled = [[name, text] for name, text in plan.defaults.items()]
        details.append(("columns that a source lacks", ["column", "write default"], filled))
    return Outcome(
        command="ingest",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=Status.NOTHING_TO_DO if plan.already else Status.DRY_RUN,
        base_snapshot_id=plan.base_snapshot_id,
        plan=facts,
        details=details,
    )


def execute(session: Session, plan: IngestPlan) -> Outcome:
    """Write the rows and commit them as one snapshot.

    Raises:
        BadInputError: a row does not fit; nothing is left behind.
        CommitConflictError: others changed what an overwrite replaces; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every file stays.
    """
    if (settled := settle(session, plan)) is not None:
        return settled
    plan = located(session, plan)
    operation_id = session.ids.uuid()
    with no_empty_folders(plan.table), staged(session, plan.table, operation_id) as staging:
        written = _write_source(session, plan, operation_id)
        if not written.files:
            tell_of_no_rows(session, plan)
            if not (plan.table.creating or plan.options.allow_empty):
                return _outcome(plan, Status.NOTHING_TO_DO, written)
        _write_kept(session, plan, operation_id, written)
        if not (plan.table.creating or written.files or plan.removed or written.replaced):
            return _outcome(plan, Status.NOTHING_TO_DO, written)
        paths_written = [file.path for file in written.all_files]
        remove_lost_attempts(session, plan.table, operation_id, paths_written)
        if plan.options.mode == APPEND:
            publish_manifests(staging, plan, written.files)
        if plan.options.stage:
            return as_staged(_outcome(plan, Status.DONE, written), staging)
        committed = commit_rows(session, plan, _operation(plan, written), operation_id)
    if committed.already:
        # The same run, by another process.
        staging.delete_unreferenced(committed.table, [file.path for file in written.all_files])
        return _outcome(plan, Status.NOTHING_TO_DO, _Written(), operation_id, committed)
    staging.unpublish_manifests()
    return _outcome(plan, Status.DONE, written, operation_id, committed)


def located(session: Session, plan: IngestPlan) -> IngestPlan:
    """Return a plan whose new table is at its catalog's location; create the table's namespace if it is missing."""
    if plan.new_table is None or not plan.table.described:
        return plan
    table = plan.new_table.stage(session.catalog, plan.table.identifier, make_namespace=True)
    return replace(plan, table=table, schema=table.schema)


def tell_of_no_rows(session: Session, plan: IngestPlan) -> None:
    """Warn of what a source without rows leaves as it was, or makes otherwise than rows would."""
    if plan.table.creating:
        if CSV in plan.formats:
            session.warn("the source has no rows, so the columns of its CSV files are text")
    elif plan.options.mode == REPLACE:
        session.warn("the source has no rows: nothing was replaced")
    elif plan.options.mode in {OVERWRITE, OVERWRITE_WHERE} and not plan.options.allow_empty:
        session.warn(
            "the source has no rows: nothing was replaced (--allow-empty removes the old rows)"
        )


# Writing


def _write_source(session: Session, plan: IngestPlan, operation_id: str) -> _Written:
    written = _Written()
    run = SourceRun(
        plan=plan,
        operation_id=operation_id,
        task=SourceTask,
        receiver=row_receiver(plan, operation_id),
        write=write_rows,
        send=send_rows,
        receive=receive_rows,
    )
    for value in run_source(session, run):
        written.files += [DataFile.from_plain(file) for file in value["files"]]
        written.rows_read += value["rows_read"]
    if written.rows != written.rows_read:
        raise LakeError(
            f"read {written.rows_read} rows but wrote {written.rows}: nothing was committed"
        )
    return written


def row_receiver(plan: IngestPlan, operation_id: str) -> Callable[[int, bool], ReceiveTask]:
    """Return what makes the payloads of `receive_rows`."""
    write = plan.ordered_settings(operation_id)
    return lambda number, keyed: ReceiveTask(task=number, write=write, keyed=keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRun(Generic[Read, Receive]):
    """How the source of a load is read and written.

    Args:
        plan: what to read, and how rows are distributed.
        operation_id: part of every file's name.
        task: makes a task's payload of the fields of a `SourceTask`.
        receiver: makes a reducer's payload of its number and whether rows carry their sort keys.
        write: writes a task's rows itself.
        send: sends them to where `receive` writes them.
        receive: writes what was sent.
        together: whether some rows must meet one writer; None for what the plan says.
    """

    plan: IngestPlan
    operation_id: str
    task: Callable[..., Read]
    receiver: Callable[[int, bool], Receive]
    write: TaskFunction[Read]
    send: MapFunction[Read]
    receive: ReduceFunction[Receive]
    together: bool | None = None

    @property
    def meets(self) -> bool:
        """Whether some rows must meet one writer."""
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
            )
            tasks.append(Task(payload, sum(unit.input_bytes for unit in group)))
            first += len(group)
        return tasks


def run_source(session: Session, run: SourceRun[Read, Receive]) -> Iterator[Mapping[str, Any]]:
    """Read the source and write its rows to data files; yield what tasks report."""
    plan = run.plan
    engine = session.engine(plan.input_bytes)
    # In this process one writer sees all rows: each partition gets one file without moving a byte.
    alone = run.meets and engine.name == "inline"
    tasks = run.tasks(1 if alone else engine.parallelism)
    exchanged = run.meets and len(tasks) > 1
    results = (
        _exchange(engine, run, tasks)
        if exchanged
        else engine.run(tasks, run.write, storage=plan.table.storage)
    )
    total = sum(task.input_bytes for task in tasks)
    session.progress.start("writing", tasks=len(tasks), total_bytes=0 if exchanged else total)
    for value in (result.value for result in results):
        yield value
        last = 0 if value["input_bytes"] else 1
        session.progress.advance(
            tasks=last, done_bytes=value["input_bytes"], rows=value["rows_read"]
        )
    session.progress.finish()


def _exchange(
    engine: Engine, run: SourceRun[Read, Receive], tasks: Sequence[Task[Read]]
) -> Iterator[TaskResult]:
    """Bring each partition's, or range's, rows together before they are written."""
    plan = run.plan
    bounds: list[str] = []
    if plan.distribution == RANGE:
        bounds = _bounds(
            engine, plan, tasks, min(_MOST_REDUCERS, wanted_tasks(plan, engine.parallelism))
        )
        count = len(bounds) + 1
    else:
        by_size = -(-plan.input_bytes // _REDUCER_BYTES)
        count = max(engine.parallelism, min(_MOST_REDUCERS, by_size))
    return engine.exchange(
        [
            Task(replace(task.payload, reducers=count, bounds=bounds), task.input_bytes)
            for task in tasks
        ],
        run.send,
        run.receive,
        [run.receiver(number, bool(bounds)) for number in range(count)],
        storage=plan.table.storage,
    )


def _bounds(
    engine: Engine, plan: IngestPlan, tasks: Sequence[Task[Read]], ranges: int
) -> list[str]:
    """Look at the rows' keys and return where to cut them into ranges."""
    size = max(SAMPLED_PER_RANGE, SAMPLED_PER_RANGE * ranges // len(tasks))
    looks: list[Task[SourceTask]] = [
        Task(replace(task.payload, sampled=size), task.input_bytes) for task in tasks
    ]
    found = engine.run(looks, sample_rows, storage=plan.table.storage)
    # In the tasks' order, so that the same input is cut in the same way.
    samples = sorted(found, key=lambda result: result.task)
    return encoded(cuts([result.value for result in samples], ranges))


def _write_kept(session: Session, plan: IngestPlan, operation_id: str, written: _Written) -> None:
    """Write again the rows that stay of files which an overwrite hits only in part."""
    if not plan.rewritten or plan.condition is None:
        return
    files = plan.files_to_rewrite()
    tasks = list(_keeping_tasks(plan, files, operation_id))
    total = sum(task.input_bytes for task in tasks)
    session.progress.start("rewriting", tasks=len(tasks), total_bytes=total)
    engine = session.engine(plan.input_bytes)
    for result in engine.run(tasks, write_kept, storage=plan.table.storage):
        value, (file, _) = result.value, files[result.task]
        session.progress.advance(tasks=1, done_bytes=file.size_bytes)
        if value["untouched"]:
            continue
        kept = [DataFile.from_plain(plain) for plain in value["files"]]
        rows = sum(one.record_count for one in kept)
        if rows + value["removed_rows"] + value["dropped"] != file.record_count:
            raise LakeError(
                f"{file.path} has {file.record_count} rows, but {rows} were kept, "
                f"{value['removed_rows']} removed and {value['dropped']} deleted before: nothing was committed"
            )
        written.kept_files += kept
        written.replaced.append(file.path)
    session.progress.finish()


def _keeping_tasks(
    plan: IngestPlan, files: Sequence[tuple[FileSlice, ReadSettings]], operation_id: str
) -> Iterator[Task[KeepTask]]:
    if plan.condition is None:
        return
    write = replace(plan.ordered_settings(operation_id), schema=plan.moved_schema)
    for number, (file, reading) in enumerate(files, _FIRST_KEEPER):
        payload = KeepTask(
            task=number, write=write, file=file, reading=reading, remove=plan.condition
        )
        yield Task(payload, file.size_bytes)


@contextmanager
def no_empty_folders(table: Table) -> Iterator[None]:
    """When making a table fails or finds no rows, leave no folders of it on a local disk."""
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


# Committing


def commit_rows(
    session: Session,
    plan: IngestPlan,
    operation: Operation,
    operation_id: str,
    *,
    table: Table | None = None,
    conditions: tuple[TableRequirement, ...] = (),
    run_operation: str | None = None,
) -> Committed:
    """Commit what an ingest wrote, with the run id, the new columns and the new table if there are any.

    Args:
        session: see `commit_snapshot`.
        plan: of the ingest.
        operation: what to commit.
        operation_id: a UUID, new for each commit.
        table: the table as the operation was decided on; None for the plan's.
        conditions: what else must hold of the table.
        run_operation: the operation that the files are named after, if that is another.
    """
    run_id = plan.options.run_id
    marks = {RUN_ID: run_id} if run_id else {}
    requirements, updates = schema_changes(plan.table, plan.schema) if plan.evolves else ((), ())
    if plan.table.creating:
        session.catalog.make_namespace(plan.table.identifier)
    with session.interrupts.last_commit():
        return commit_snapshot(
            session,
            table or plan.table,
            operation,
            operation_id=operation_id,
            branch=plan.options.branch,
            summary=marks,
            # A replay leaves the id in the table even where it was not given.
            guard={RUN_ID: run_id_of(plan, run_operation or operation_id)},
            requirements=(*requirements, *conditions),
            updates=updates,
        )


def _operation(plan: IngestPlan, written: _Written) -> Operation:
    mode, base = plan.options.mode, plan.base_snapshot_id
    files = written.all_files
    if mode == APPEND or (plan.table.creating and (mode != REPLACE or not files)):
        return AppendFiles(added=files)
    isolation = DELETE_ISOLATION.of(plan.table.properties)
    if mode == REPLACE:
        return ReplacePartitions(added=files, base_snapshot_id=base, isolation=isolation)
    return OverwriteFiles(
        added=files,
        removed_paths=[*plan.removed, *written.replaced],
        base_snapshot_id=base,
        conflict_filter=plan.condition,
        isolation=isolation,
    )


def _outcome(
    plan: IngestPlan,
    status: Status,
    written: _Written,
    operation_id: str | None = None,
    committed: Committed | None = None,
) -> Outcome:
    files: Iterable[DataFile] = written.all_files
    result: Mapping[str, Any] = {
        "rows_read": written.rows_read,
        "rows_written": written.rows,
        "rows_inserted": written.rows,
        "rows_updated": 0,
        "rows_rejected": 0,
        "data_files": len(written.all_files),
        "delete_files": 0,
        "bytes_written": sum(file.size_bytes for file in files),
    }
    return Outcome(
        command="ingest",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=status,
        operation_id=operation_id if committed else None,
        base_snapshot_id=plan.base_snapshot_id,
        snapshot_ids=committed.snapshot_ids[-1:] if committed else (),
        plan=describe(plan),
        result=result,
    )
