"""Execute an ingest: write rows to files on the engine and commit them as one snapshot; a failure leaves no files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lake.core.base.errors import BadInputError, LakeError
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, showing
from lake.core.base.units import natural_number
from lake.core.data.columns.text_encoding import json_lines
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.data.sources.batches import source_batches
from lake.core.engine.inline import InlineEngine
from lake.core.engine.tasks import Task
from lake.core.load.ingest.facts import IngestFacts, IngestResult
from lake.core.load.ingest.load import (
    Load,
    SourceRun,
    row_receiver,
    run_load,
    run_source,
    warn_of_no_rows,
)
from lake.core.load.ingest.options import APPEND, REPLACE
from lake.core.load.ingest.payloads import KeepTask, SourceTask, WriteReport
from lake.core.load.ingest.plan import IngestPlan, describe, tasks_for
from lake.core.load.ingest.rejects import RejectReport
from lake.core.load.ingest.result import Landed, LoadResult
from lake.core.load.ingest.tasks import (
    find_partitions,
    receive_rows,
    send_rows,
    write_kept,
    write_rows,
)
from lake.core.spec.properties.table_properties import DELETE_ISOLATION
from lake.core.spec.types.partition_paths import partition_path
from lake.core.spec.types.transforms import Partition
from lake.core.spec.types.type_text import type_text
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.operations import (
    AppendFiles,
    Operation,
    OverwriteFiles,
    ReplacePartitions,
)
from lake.core.transaction.removals import Removals, removals_in_partitions
from lake.core.transaction.session import Session
from lake.core.transaction.staging.operation_files import Staging

# Numbers of rewriting tasks start here, so that file names differ from those of loading tasks.
_FIRST_KEEPER = 50_000
_SAMPLE_ROWS = 5
# A dry run does not read more than this.
_MOST_PREVIEW_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class _Written:
    """Files of new rows, files of rows that an overwrite keeps, and the paths that the latter replace."""

    files: list[DataFile] = field(default_factory=list)
    rows_read: int = 0
    kept_files: list[DataFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    # The partition of each replaced file, and the number of its rows that are removed.
    removed_rows: list[tuple[str, int]] = field(default_factory=list)
    rejects: list[RejectReport] = field(default_factory=list)

    @property
    def rejected(self) -> int:
        return sum(report.rows for report in self.rejects)

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def all_files(self) -> list[DataFile]:
        return [*self.files, *self.kept_files]


def preview(session: Session, plan: IngestPlan, described: IngestFacts | None = None) -> Outcome:
    """Describe a plan without executing it, with the first rows of its text files.

    Args:
        session: the session.
        plan: the plan.
        described: what is shown of it, if that is more than `describe` returns.
    """
    rows, problem = _first_rows(plan)
    if plan.options.mode == REPLACE and not plan.earlier.already and problem is None:
        try:
            plan = replace(plan, removals=_replaced_partitions(session, plan))
        except BadInputError as error:
            problem = error
    facts = replace(described or describe(plan), sample_rows=rows)
    columns = [
        [item.name, type_text(item.field_type), item.required] for item in plan.schema.fields
    ]
    details = [Detail("columns", ["column", "type", "required"], columns)]
    if plan.defaults:
        filled = [[name, text] for name, text in plan.defaults.items()]
        details.append(Detail("columns that a source lacks", ["column", "write default"], filled))
    if rows:
        values = [list(row.values()) for row in rows]
        types = [type_text(item.field_type) for item in plan.schema.fields]
        details.append(Detail("first rows", list(rows[0]), values, types))
    notes: list[str] = []
    if plan.removals is not None and any(item.partition for item in plan.removals.partitions):
        lost, notes = plan.removals.shown(verbose=session.settings.verbose)
        details.append(lost)
    return Outcome(
        status=Status.NOTHING_TO_DO if plan.earlier.already else Status.DRY_RUN,
        base_snapshot_id=plan.base_snapshot_id,
        plan=facts,
        warnings=[] if problem is None else [f"the load will fail: {problem.message}"],
        details=details,
        notes=notes,
    )


def _first_rows(plan: IngestPlan) -> tuple[list[dict[str, Any]], BadInputError | None]:
    """Return the first rows of the text files as JSON-ready values, and the error of a row that cannot be read.

    There are none of a change log, whose rows are not rows of the table, and of other files.
    """
    rows: list[dict[str, Any]] = []
    if plan.request.changes_column is not None:
        return rows, None
    try:
        for source in plan.text_files:
            for batch in source_batches(
                plan.table.storage, source, plan.schema, first=_SAMPLE_ROWS
            ):
                lines = json_lines(batch.slice(0, _SAMPLE_ROWS - len(rows)), plan.schema)
                rows += [json.loads(line) for line in lines.to_pylist()]
                if len(rows) >= _SAMPLE_ROWS:
                    return rows, None
    except BadInputError as error:
        return rows, error
    return rows, None


def _replaced_partitions(session: Session, plan: IngestPlan) -> Removals | None:
    """Return what a load that replaces partitions removes; None if much of the source must be read to know.

    Raises:
        BadInputError: the source cannot be read.
    """
    creating = bool(plan.table.creating)
    head = None if creating else ancestry.branch_head(plan.table.metadata, plan.options.branch)
    if head is None or plan.table.spec.is_unpartitioned():
        return removals_in_partitions(plan.table, head, [()])
    if sum(unit.input_bytes for unit in plan.units) > _MOST_PREVIEW_BYTES:
        return None
    return removals_in_partitions(plan.table, head, _source_partitions(session, plan))


def _source_partitions(session: Session, plan: IngestPlan) -> list[Partition]:
    write = plan.settings("")
    tasks = [
        Task(
            SourceTask(
                task=number,
                write=write,
                units=[unit.read for unit in units],
                reading=plan.reading(units),
                rejects=plan.reject_settings(""),
            )
        )
        for number, units in enumerate(tasks_for(plan, 1))
    ]
    engine = InlineEngine(ids=session.ids)
    results = engine.run(tasks, find_partitions, storage=plan.table.storage)
    return list(dict.fromkeys(item for result in results for item in result.value.partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFiles:
    """What the tasks of a DataFrame have written: the operation id in the names of the files, and their reports."""

    operation_id: str
    reports: Sequence[WriteReport]


def execute(session: Session, plan: IngestPlan, written: FrameFiles | None = None) -> Outcome:
    """Write the rows and commit them as one snapshot.

    Args:
        session: the session.
        plan: the plan.
        written: what the tasks of a DataFrame have written; None to read the plan's sources.

    Raises:
        BadInputError: a row does not fit; nothing is left behind.
        CommitConflictError: others changed what an overwrite replaces; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every file stays.
    """
    load = partial(_Ingest, session, reports=written.reports if written else None)
    operation_id = written.operation_id if written else None
    return run_load(session, plan, load, describe(plan), operation_id)


class _Ingest(Load):
    """An ingest that appends rows, or replaces rows, partitions or the whole table."""

    def __init__(
        self,
        session: Session,
        plan: IngestPlan,
        operation_id: str,
        reports: Iterable[WriteReport] | None,
    ) -> None:
        super().__init__(session, plan, operation_id)
        self._reports = reports
        self._written = _Written()

    def write(self) -> LoadResult:
        """Write the source's rows, and those that an overwrite keeps."""
        plan = self.plan
        reports = self._reports
        if reports is None:
            reports = _write_source(self.session, plan, self.operation_id)
        self._written = written = _collected(reports)
        self.keep_rejects(written.rejects, plan.schema, written.rows_read)
        if not written.files:
            warn_of_no_rows(self.session, plan)
        if self._is_wanted:
            _write_kept(self.session, plan, self.operation_id, written)
        return LoadResult(
            data=written.all_files,
            counts=IngestResult(
                rows_read=written.rows_read,
                rows_written=written.rows,
                rows_inserted=written.rows,
                rows_rejected=written.rejected,
            ),
        )

    @property
    def _is_wanted(self) -> bool:
        """Whether the load continues; without rows, only if it creates a table or may remove rows."""
        plan = self.plan
        # An overwrite by rows that are all rejected would delete the old rows.
        empty = (plan.table.creating or plan.options.allow_empty) and not self._written.rejected
        return bool(self._written.files or empty)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to commit."""
        plan, written = self.plan, self._written
        changed = plan.table.creating or written.files or plan.removed or written.replaced
        return self._is_wanted and bool(changed)

    def commit(self, staging: Staging, result: LoadResult) -> Landed:
        """Commit the files, or leave them staged."""
        published = self.plan.options.mode == APPEND
        operation = _operation(self.plan, self._written)
        result = replace(result, removals=self._removals())
        landed = self.commit_files(staging, result, operation, published=published)
        return replace(landed, result=_as_committed(landed))

    def _removals(self) -> Removals | None:
        """Return what the commit removes, if no other writer changes it before."""
        plan, written = self.plan, self._written
        if plan.table.creating or plan.options.mode == APPEND:
            return None
        if plan.options.mode != REPLACE:
            return plan.removals and plan.removals.rewritten(written.removed_rows)
        head = ancestry.branch_head(plan.table.metadata, plan.options.branch)
        partitions = dict.fromkeys(file.partition for file in written.all_files)
        return removals_in_partitions(plan.table, head, list(partitions))


def _as_committed(landed: Landed) -> LoadResult:
    """Return a load's result without numbers that the commit contradicts: other writers may have added files."""
    result, committed = landed.result, landed.committed
    snapshot = committed and committed.table.metadata.snapshot_by_id(committed.snapshot_id)
    if result.removals is None or not snapshot or snapshot.summary is None:
        return result
    summary = properties_of(snapshot)
    removed = natural_number(summary.get("deleted-data-files", "0"))
    if removed == result.removals.files + result.removals.rewritten_files:
        return result
    rows = natural_number(summary.get("deleted-records", "0")) or 0
    return replace(result, removals=replace(result.removals, rows_at_least=0, rows_at_most=rows))


# Writing


def _write_source(session: Session, plan: IngestPlan, operation_id: str) -> Iterator[WriteReport]:
    run = SourceRun(
        plan=plan,
        operation_id=operation_id,
        task=SourceTask,
        receiver=row_receiver(plan, operation_id),
        write=write_rows,
        send=send_rows,
        receive=receive_rows,
    )
    return run_source(session, run)


def _collected(reports: Iterable[WriteReport]) -> _Written:
    written = _Written()
    for report in reports:
        written.files += report.files
        written.rows_read += report.rows_read
        written.rejects += report.rejects
    if written.rows + written.rejected != written.rows_read:
        raise LakeError(
            f"read {written.rows_read} rows but wrote {written.rows} and rejected {written.rejected}: "
            "nothing was committed"
        )
    return written


def _write_kept(session: Session, plan: IngestPlan, operation_id: str, written: _Written) -> None:
    """Write the rows that are kept of files in which an overwrite removes only some rows."""
    if not plan.rewritten or plan.condition is None:
        return
    files, specs = plan.files_to_rewrite(), plan.table.metadata.specs()
    tasks = list(_keeping_tasks(plan, files, operation_id))
    meter = Meter("rewriting", inputs=[task.input_bytes for task in tasks])
    engine = session.engine(plan.divisible_bytes)
    results = engine.run(tasks, write_kept, storage=plan.table.storage, meter=meter)
    for result in showing(session.progress, meter, results):
        report, (file, _) = result.value, files[result.task]
        if report.untouched:
            continue
        rows = sum(kept.record_count for kept in report.files)
        if rows + report.removed_rows + report.dropped != file.record_count:
            raise LakeError(
                f"{file.path} has {file.record_count} rows, but {rows} were kept, "
                f"{report.removed_rows} removed and {report.dropped} deleted before: nothing was committed"
            )
        name = partition_path(specs[file.spec_id], plan.table.schema, file.partition)
        written.removed_rows.append((name, report.removed_rows))
        written.kept_files += report.files
        written.replaced.append(file.path)


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
