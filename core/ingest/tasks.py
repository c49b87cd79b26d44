"""The tasks of an ingest: write rows from sources to data files, directly or through an exchange.

Rows are exchanged as Arrow IPC streams, which keep every type without loss; they never become rows of a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.columns.nullability import null_in_required
from lake.core.deletes.apply import Deletes
from lake.core.engine.shuffle import Report, ShuffleBuffer, decode_report, encode_report
from lake.core.engine.tasks import TaskContext
from lake.core.errors import BadInputError
from lake.core.expressions.filters import bind_filter, filter_columns, row_mask
from lake.core.ingest.payloads import (
    KeepReport,
    KeepTask,
    PartitionsReport,
    ReceiveTask,
    SendReport,
    SourceTask,
    SourceUnit,
    WriteReport,
)
from lake.core.manifests.data_files import DataFile
from lake.core.options import Option
from lake.core.rows.reader import FileSlice, ReadSettings, prefetch, read_batches
from lake.core.rows.sorted_writer import OrderedWriter, open_ordered_writer
from lake.core.sorting.external_sort import with_keys
from lake.core.sorting.range_partitioning import KeySample, Ranges, SampledKeys
from lake.core.sorting.sort_keys import RowOrder
from lake.core.sources.batches import as_table_rows, source_batches
from lake.core.types.arrow_schema import top_columns
from lake.core.types.transforms import Partition, group_rows, partition_number

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

_SHOWN = 200


def write_rows(task: SourceTask, context: TaskContext) -> Iterator[WriteReport]:
    """Read a task's units and write their rows."""
    settings = task.write
    rows = 0
    with open_ordered_writer(context, settings, task=task.task) as writer:
        for _, batches in task_units(task, settings.schema, context):
            for batch in prefetch(batches):
                context.check_cancelled()
                writer.write(batch)
                rows += batch.num_rows
        files = writer.close()
    yield WriteReport(files=files, rows_read=rows)


def send_rows(task: SourceTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Read a task's units and send the rows of each partition, or range, to its reducer.

    The number of rows read is sent to the first reducer, so that the driver can compare it with the number of rows
    that all reducers wrote.
    """
    settings = task.write
    outbox = ShuffleBuffer(task.reducers)
    split = _by_range(task) if task.bounds else _by_partition(task)
    rows = 0
    for _, batches in task_units(task, settings.schema, context):
        for batch in prefetch(batches):
            context.check_cancelled()
            rows += batch.num_rows
            for reducer, part in split(batch):
                yield from outbox.add(reducer, part)
    yield from outbox.drain()
    if rows:
        yield 0, encode_report(SendReport(rows_read=rows))


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
    order, ranges = settings.order, Ranges(task.bounds)
    if order is None:
        raise ValueError("rows without an order have no ranges")
    return lambda batch: ranges.split(with_keys(batch, order, settings.schema))


def sample_rows(task: SourceTask, context: TaskContext) -> Iterator[SampledKeys]:
    """Report a sample of ``sampled`` sort keys of a task's rows; reads only the key columns."""
    settings = task.write
    order = settings.order or RowOrder()
    schema = top_columns(settings.schema, order.column_ids)
    task = replace(task, must_match=None, reading=_narrowed(task.reading, schema))
    sample = KeySample(task.sampled, task.task)
    for _, batches in task_units(task, schema, context):
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
    task = replace(task, must_match=None, reading=_narrowed(task.reading, schema))
    partitions: dict[Partition, None] = {}
    for _, batches in task_units(task, schema, context):
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
    yield WriteReport(files=files, rows_read=sum(sender.rows_read for sender in senders))


def write_sent(
    task: ReceiveTask, blobs: Iterable[bytes], context: TaskContext, report_type: type[Report]
) -> tuple[list[DataFile], list[Report]]:
    """Write the rows that were sent to one reducer; return the files and the senders' reports."""
    reports = []
    with open_ordered_writer(context, task.write, task=task.task) as writer:
        write = writer.write
        if task.keyed and isinstance(writer, OrderedWriter):
            write = writer.write_keyed
        for blob in blobs:
            context.check_cancelled()
            stream = pa.ipc.open_stream(blob)
            if (report := decode_report(stream, report_type)) is not None:
                reports.append(report)
            for batch in stream:
                write(batch)
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
    task: SourceTask, schema: Schema, context: TaskContext
) -> Iterator[tuple[SourceUnit, Iterator[pa.RecordBatch]]]:
    """Yield each unit of a task with its rows in the table's schema."""
    condition = None if task.must_match is None else bind_filter(task.must_match, schema)
    units = (
        _source_rows(task.units, schema, context)
        if task.reading is None
        else _table_rows(task.units, task.reading, schema, context)
    )
    reading = _Reading(context, sum(unit.input_bytes for unit in task.units))
    for unit, batches in units:
        yield unit, reading.counted(_checked(batches, condition, schema))
        reading.end(unit)


class _Reading:
    """Reports the progress of a task that reads units one after the other."""

    def __init__(self, context: TaskContext, total_bytes: int) -> None:
        self._context = context
        self._total_bytes = max(total_bytes, 1)
        self._rows = self._bytes = 0

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a unit, and report their rows."""
        for batch in batches:
            self._rows += batch.num_rows
            self._context.report(self._rows, self._bytes / self._total_bytes)
            yield batch

    def end(self, unit: SourceUnit) -> None:
        """Report that a unit was read."""
        self._bytes += unit.input_bytes
        self._context.report(self._rows, self._bytes / self._total_bytes)


def _checked(
    batches: Iterator[tuple[pa.RecordBatch, str]],
    condition: BooleanExpression | None,
    schema: Schema,
) -> Iterator[pa.RecordBatch]:
    for batch, where in batches:
        _check_required(batch, where)
        if condition is not None:
            _check_matching(batch, condition, schema, where)
        yield batch


def _source_rows(
    units: Sequence[SourceUnit], schema: Schema, context: TaskContext
) -> Iterator[tuple[SourceUnit, Iterator[tuple[pa.RecordBatch, str]]]]:
    for unit in units:
        if unit.source is not None:
            batches = source_batches(context.storage, unit.source, schema)
            yield unit, ((batch, unit.path) for batch in batches)


def _table_rows(
    units: Sequence[SourceUnit], reading: ReadSettings, schema: Schema, context: TaskContext
) -> Iterator[tuple[SourceUnit, Iterator[tuple[pa.RecordBatch, str]]]]:
    files = [(unit, unit.file) for unit in units if unit.file is not None]
    with closing(Deletes(context.storage, reading, [file for _, file in files])) as deletes:
        for unit, file in files:
            yield unit, _slice_rows(file, reading, deletes, schema, context)


def _slice_rows(
    file: FileSlice, reading: ReadSettings, deletes: Deletes, schema: Schema, context: TaskContext
) -> Iterator[tuple[pa.RecordBatch, str]]:
    for batch in read_batches(context.storage, file, reading, deletes):
        yield as_table_rows(batch, schema, file.path), file.path


def _check_required(batch: pa.RecordBatch, where: str) -> None:
    if name := null_in_required(batch):
        raise BadInputError(f"{where} has NULL in the required column {name}")


def _check_matching(
    batch: pa.RecordBatch, condition: BooleanExpression, schema: Schema, where: str
) -> None:
    mask = row_mask(condition, batch, schema)
    if not pc.all(mask).as_py():
        row = batch.filter(pc.invert(mask)).slice(0, 1).to_pylist()[0]
        raise BadInputError(
            f"{where} has a row outside {Option.OVERWRITE_WHERE}: {_shown_row(row)}",
            hint="remove the row, or widen the filter",
        )


def _shown_row(row: Mapping[str, Any]) -> str:
    """Return the start of a row for a message: names with values, as filters write them."""
    text = ", ".join(
        f"{name} is NULL" if value is None else f"{name} = {value}" for name, value in row.items()
    )
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
