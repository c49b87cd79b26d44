"""The tasks of an ingest: write rows from sources to data files, directly or through an exchange.

Rows are exchanged as Arrow IPC streams, which keep every type without loss; they never become rows of a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.data.columns.nullability import null_in_required
from lake.core.data.deletes.apply import Deletes
from lake.core.data.rows.reader import FileSlice, ReadSettings, prefetch, read_batches
from lake.core.data.rows.sorted_writer import open_ordered_writer, write_in_order
from lake.core.data.rows.writer import open_writer
from lake.core.data.sorting.external_sort import with_keys
from lake.core.data.sorting.range_partitioning import KeySample, Ranges, SampledKeys
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.data.sources.acceptance import Acceptance, RowCheck, RowProblem, halves_with
from lake.core.data.sources.batches import raw_table_rows, source_batches
from lake.core.data.sources.discovery import Position
from lake.core.engine.shuffle import Report, ShuffleBuffer, encode_report, received
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.payloads import (
    KeepReport,
    KeepTask,
    PartitionsReport,
    ReceiveTask,
    SendReport,
    SourceTask,
    SourceUnit,
    WriteReport,
)
from lake.core.load.ingest.rejects import UnitRejects
from lake.core.spec.expressions.filters import bind_filter, filter_columns, row_mask
from lake.core.spec.types.arrow_schema import top_columns
from lake.core.spec.types.transforms import Partition, group_rows, partition_number
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

_SHOWN = 200


def write_rows(task: SourceTask, context: TaskContext) -> Iterator[WriteReport]:
    """Read a task's units and write their rows."""
    settings = task.write
    rows = 0
    reports = []
    with open_ordered_writer(context, settings, task=task.task) as writer:
        for _, batches, rejects in task_units(task, settings.schema, context):
            for batch in prefetch(batches):
                context.check_cancelled()
                writer.write(batch)
                rows += batch.num_rows
            rows += rejects.count
            reports.append(rejects.report())
        files = writer.close()
    yield WriteReport(files=files, rows_read=rows, rejects=reports)


def send_rows(task: SourceTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Read a task's units and send the rows of each partition, or range, to its reducer.

    The number of rows read is sent to the first reducer, so that the driver can compare it with the number of rows
    that all reducers wrote.
    """
    settings = task.write
    outbox = ShuffleBuffer(task.parts)
    split = _by_range(task) if task.bounds else _by_partition(task)
    rows = 0
    reports = []
    for _, batches, rejects in task_units(task, settings.schema, context):
        for batch in prefetch(batches):
            context.check_cancelled()
            rows += batch.num_rows
            for reducer, part in split(batch):
                yield from outbox.add(reducer, part)
        rows += rejects.count
        reports.append(rejects.report())
    yield from outbox.drain()
    if rows:
        yield 0, encode_report(SendReport(rows_read=rows, rejects=reports))


Split = Callable[[pa.RecordBatch], Iterator[tuple[int, pa.RecordBatch]]]


def _by_partition(task: SourceTask) -> Split:
    settings = task.write

    def split(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        for partition, part in group_rows(batch, settings.spec, settings.schema):
            yield partition_number(partition, task.reducers), part

    return split


def _by_range(task: SourceTask) -> Split:
    """Split rows by their sort keys, and keep the keys as a column."""
    settings = task.write
    order, ranges = settings.order, Ranges(task.bounds, task.parts)
    if order is None:
        raise ValueError("rows without an order have no ranges")
    return lambda batch: ranges.split(with_keys(batch, order, settings.schema))


def sample_rows(task: SourceTask, context: TaskContext) -> Iterator[SampledKeys]:
    """Report a sample of ``sampled`` sort keys of a task's rows; reads only the key columns."""
    settings = task.write
    order = settings.order or RowOrder()
    schema = top_columns(settings.schema, order.column_ids)
    task = replace(task, must_match=None, reading=_narrowed(task.reading, schema)).counting()
    sample = KeySample(task.sampled, task.task)
    for _, batches, _ in task_units(task, schema, context):
        for batch in batches:
            context.check_cancelled()
            sample.add(order.keys(batch, schema))
    yield sample.result()


def find_partitions(task: SourceTask, context: TaskContext) -> Iterator[PartitionsReport]:
    """Report the distinct partitions of a task's rows; reads only the partition columns."""
    settings = task.write
    known = settings.schema.field_ids
    ids = [item.source_id for item in settings.spec.fields if item.source_id in known]
    schema = top_columns(settings.schema, ids)
    task = replace(task, must_match=None, reading=_narrowed(task.reading, schema)).counting()
    partitions: dict[Partition, None] = {}
    for _, batches, _ in task_units(task, schema, context):
        for batch in batches:
            context.check_cancelled()
            partitions.update(
                (partition, None) for partition, _ in group_rows(batch, settings.spec, schema)
            )
    yield PartitionsReport(partitions=list(partitions))


def _narrowed(reading: ReadSettings | None, schema: Schema) -> ReadSettings | None:
    """Return the settings for reading only the columns of a schema from another table."""
    if reading is None:
        return None
    known = [item.name for item in reading.projection.fields]
    names = [item.name for item in schema.fields if item.name in known] or known[:1]
    return replace(reading, projection=reading.projection.select(*names))


def receive_rows(
    task: ReceiveTask, blobs: Iterable[bytes], context: TaskContext
) -> Iterator[WriteReport]:
    """Write the rows that were sent to one reducer; reports the files, and the rows that the senders read."""
    files, senders = write_sent(task, blobs, context, SendReport)
    yield WriteReport(
        files=files,
        rows_read=sum(sender.rows_read for sender in senders),
        rejects=[report for sender in senders for report in sender.rejects],
    )


def write_sent(
    task: ReceiveTask, blobs: Iterable[bytes], context: TaskContext, report_type: type[Report]
) -> tuple[list[DataFile], list[Report]]:
    """Write the rows that were sent to one reducer; return the files and the senders' reports."""
    reports: list[Report] = []
    rows = received(blobs, report_type, reports)
    if task.keyed:
        with open_writer(
            context.storage, task.write, task=task.task, attempt=context.attempt
        ) as files:
            write_in_order(files, rows, context.check_cancelled)
            return files.close(), reports
    with open_ordered_writer(context, task.write, task=task.task) as writer:
        for _, batch in rows:
            context.check_cancelled()
            writer.write(batch)
        return writer.close(), reports


def write_kept(task: KeepTask, context: TaskContext) -> Iterator[KeepReport]:
    """Write the rows of a file for which a filter is not true to new files.

    A file without a row for which the filter is true is reported as untouched, and nothing is written.
    """
    settings = task.write
    file, reading = task.file, task.reading
    condition = bind_filter(task.remove, settings.schema)
    if not _any_match(context, file, reading, condition):
        yield KeepReport(untouched=True)
        return
    removed = 0
    with (
        open_ordered_writer(context, settings, task=task.task) as writer,
        closing(Deletes(context.storage, reading, [file])) as deletes,
    ):
        for batch in prefetch(read_batches(context.storage, file, reading, deletes)):
            context.check_cancelled()
            mask = row_mask(condition, batch, settings.schema)
            removed += pc.sum(mask).as_py()
            writer.write(batch.filter(pc.invert(mask)))
        files = writer.close()
    yield KeepReport(files=files, removed_rows=removed, dropped=deletes.dropped)


def _any_match(
    context: TaskContext, file: FileSlice, reading: ReadSettings, condition: BooleanExpression
) -> bool:
    names = [reading.schema.find_column_name(column) or "" for column in filter_columns(condition)]
    if not names:
        return True
    projection = reading.schema.select(*names)
    matching = replace(reading, projection=projection, row_filter=condition)
    with closing(Deletes(context.storage, matching, [file])) as deletes:
        batches = read_batches(context.storage, file, matching, deletes)
        return any(batch.num_rows for batch in batches)


# Rows, checked


def task_units(
    task: SourceTask, schema: Schema, context: TaskContext, checks: Sequence[RowCheck] = ()
) -> Iterator[tuple[SourceUnit, Iterator[pa.RecordBatch], UnitRejects]]:
    """Yield each unit of a task with its rows in the table's schema, and the rows that are set aside.

    The rows that are set aside are complete when all other rows are read.

    Args:
        task: the task.
        schema: the table's schema.
        context: of the task.
        checks: what is checked of each row, after the table's schema and the task's filter.
    """
    standard: list[RowCheck] = [null_check]
    if task.must_match is not None:
        standard.append(filter_check(bind_filter(task.must_match, schema), schema))
    every = [*standard, *checks]
    reading = _Reading(context, sum(unit.input_bytes for unit in task.units))
    with closing(_unit_rows(task, schema, context)) as units:
        for unit, parts in units:
            rejects = UnitRejects(
                context.storage,
                task.rejects,
                schema,
                place=unit.place,
                attempt=context.attempt,
            )
            acceptance = Acceptance(every, rejects if task.rejects else None)
            position = Position()
            batches = _accepted(parts(acceptance=acceptance, position=position), rejects)
            yield unit, reading.counted(unit, batches, position), rejects
            reading.end(unit)


class _Reading:
    """Reports the progress of a task that reads units one after the other."""

    def __init__(self, context: TaskContext, total_bytes: int) -> None:
        self._context = context
        self._total_bytes = max(total_bytes, 1)
        self._rows = self._bytes = 0

    def counted(
        self, unit: SourceUnit, batches: Iterator[pa.RecordBatch], position: Position
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a unit, and report their rows and how far the unit is read."""
        for batch in batches:
            self._rows += batch.num_rows
            read = self._bytes + unit.input_bytes * position.share
            self._context.report(self._rows, read / self._total_bytes)
            yield batch

    def end(self, unit: SourceUnit) -> None:
        """Report that a unit was read."""
        self._bytes += unit.input_bytes
        self._context.report(self._rows, self._bytes / self._total_bytes)


def _accepted(batches: Iterator[pa.RecordBatch], rejects: UnitRejects) -> Iterator[pa.RecordBatch]:
    with rejects:
        yield from batches


class Parts(Protocol):
    """Reads the rows of a unit, as the table's rows."""

    def __call__(self, *, acceptance: Acceptance, position: Position) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; rows that cannot be read are given to the acceptance."""


def _unit_rows(
    task: SourceTask, schema: Schema, context: TaskContext
) -> Generator[tuple[SourceUnit, Parts]]:
    """Yield each unit with the function that reads its rows."""
    if task.reading is None:
        for unit in task.units:
            if unit.source is not None:
                yield unit, partial(source_batches, context.storage, unit.source, schema)
        return
    files = [(unit, unit.file) for unit in task.units if unit.file is not None]
    with closing(Deletes(context.storage, task.reading, [file for _, file in files])) as deletes:
        for unit, file in files:
            yield unit, partial(_slice_rows, file, task.reading, deletes, schema, context)


def _slice_rows(
    file: FileSlice,
    reading: ReadSettings,
    deletes: Deletes,
    schema: Schema,
    context: TaskContext,
    acceptance: Acceptance,
    position: Position,
) -> Iterator[pa.RecordBatch]:
    rows, total = 0, max(file.record_count, 1)
    position.follow(lambda: rows / total)
    for batch in read_batches(context.storage, file, reading, deletes):
        rows += batch.num_rows
        yield acceptance.accepted(raw_table_rows(batch, schema, file.path), file.path)


def null_check(batch: pa.RecordBatch, where: str) -> RowProblem | None:
    """Return the rows that have NULL in a required column."""
    name = null_in_required(batch)
    if name is None:
        return None
    reason = f"NULL in the required column {name}"
    mask = halves_with(batch, lambda part: null_in_required(part) == name)
    return RowProblem(mask, reason, BadInputError(f"{where} has {reason}"))


def filter_check(condition: BooleanExpression, schema: Schema) -> RowCheck:
    """Return the check of the filter that all rows of an overwrite must match."""

    def check(batch: pa.RecordBatch, where: str) -> RowProblem | None:
        matching = row_mask(condition, batch, schema)
        if pc.all(matching).as_py():
            return None
        others = pc.invert(matching)
        row = batch.filter(others).slice(0, 1).to_pylist()[0]
        error = BadInputError(
            f"{where} has a row outside {Option.OVERWRITE_WHERE}: {_shown_row(row)}",
            hint="remove the row, or widen the filter",
        )
        mask = others.to_numpy(zero_copy_only=False)
        return RowProblem(mask, "the row does not match the overwrite's filter", error)

    return check


def _shown_row(row: Mapping[str, Any]) -> str:
    """Return the start of a row for a message: names with values, as filters write them."""
    text = ", ".join(
        f"{name} is NULL" if value is None else f"{name} = {value}" for name, value in row.items()
    )
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
