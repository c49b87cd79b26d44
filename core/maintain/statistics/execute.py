"""Sketch the columns of a snapshot, write the statistics file, and register it in the table's metadata."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from lake.core.base import locations
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.data.deletes.puffin import PuffinWriter
from lake.core.engine.tasks import Task
from lake.core.maintain.statistics.facts import ColumnFacts, StatisticsResult
from lake.core.maintain.statistics.plan import (
    THETA_SKETCH,
    StatisticsOptions,
    StatisticsPlan,
    plan_statistics,
)
from lake.core.maintain.statistics.registration import register
from lake.core.maintain.statistics.tasks import SketchTask, sketch_columns
from lake.core.maintain.statistics.theta_sketch import ThetaSketch
from lake.core.transaction.commit.preconditions import require_writable

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_COLUMNS = ("column", "id", "type", "ndv")


def preview(plan: StatisticsPlan) -> Outcome:
    """Return a dry run's outcome."""
    return _outcome(plan, Status.NOTHING_TO_DO if plan.is_empty else Status.DRY_RUN)


def execute(session: Session, table: Table, options: StatisticsOptions) -> Outcome:
    """Describe the head of a branch; statistics that the snapshot has are replaced.

    Raises:
        CorruptFileError: a file cannot be read; nothing was changed.
        OutOfTimeError: the time of the run ended before all files were read; nothing was changed.
        CommitConflictError: the snapshot expired meanwhile; nothing was changed.
        CommitUnknownError: the commit may have succeeded; the file is kept.
    """
    require_writable(table, options.branch)
    plan = plan_statistics(table, options)
    snapshot = plan.snapshot
    if snapshot is None or plan.is_empty:
        return _outcome(plan, Status.NOTHING_TO_DO)
    sketches = _sketches(session, plan)
    operation_id = session.ids.uuid()
    name = f"{snapshot.snapshot_id}-{operation_id}.stats"
    path = locations.join(table.metadata_folder, name)
    with PuffinWriter(table.storage, path) as writer:
        blobs = [
            BlobMetadata(
                type=THETA_SKETCH,
                snapshot_id=snapshot.snapshot_id,
                sequence_number=snapshot.sequence_number or 0,
                fields=[field.field_id],
                properties={"ndv": str(sketch.estimate)},
            )
            for field, sketch in zip(plan.fields, sketches, strict=True)
        ]
        for blob, sketch in zip(blobs, sketches, strict=True):
            writer.add_blob(sketch.to_bytes(), blob)
        size = writer.close()
    file = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=path,
        file_size_in_bytes=size,
        file_footer_size_in_bytes=writer.footer_size,
        blob_metadata=blobs,
    )
    register(session, table, options.branch, file)
    rows = [
        [field.name, field.field_id, str(field.field_type), sketch.estimate]
        for field, sketch in zip(plan.fields, sketches, strict=True)
    ]
    result = StatisticsResult(
        statistics_file=path,
        bytes_written=size,
        columns=[
            ColumnFacts(name=field.name, id=field.field_id, ndv=sketch.estimate)
            for field, sketch in zip(plan.fields, sketches, strict=True)
        ],
    )
    return _outcome(plan, Status.DONE, result, operation_id, [Detail("columns", _COLUMNS, rows)])


def _sketches(session: Session, plan: StatisticsPlan) -> list[ThetaSketch]:
    """Read all rows, and return a sketch of each column."""
    scan = plan.scan
    tasks = [
        Task(
            SketchTask(scan.reading(split.deletes), split.slices),
            sum(item.length or item.size_bytes - item.start for item in split.slices),
        )
        for split in scan.reads()
    ]
    sketches = [ThetaSketch() for _ in plan.fields]
    if not tasks:
        return sketches
    meter = Meter("reading", inputs=[task.input_bytes for task in tasks])
    engine = session.engine(scan.bytes)
    results = engine.run(tasks, sketch_columns, storage=plan.table.storage, meter=meter)
    with closing(results), shown(session.progress, meter):  # type: ignore[type-var]
        for result in results:
            session.require_time("not all files were read, and no statistics were written")
            for sketch, report in zip(sketches, result.value.columns, strict=True):
                sketch.merge(report.sketch())
    return sketches


def _outcome(
    plan: StatisticsPlan,
    status: Status,
    result: Facts = NoFacts(),
    operation_id: str | None = None,
    details: list[Detail] | None = None,
) -> Outcome:
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
        details=details or [],
    )
