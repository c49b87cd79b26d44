"""The tasks of a compaction: rewrite a range of rows, and compare rows before and after."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.types import StringType

from lake.core.base.errors import LakeError
from lake.core.base.plain import PlainData
from lake.core.data.columns.metrics import leaves
from lake.core.data.deletes.apply import Deletes
from lake.core.data.rows.content_hash import ContentHash, hash_all
from lake.core.data.rows.reader import (
    FileSlice,
    ReadSettings,
    prefetch,
    present_columns,
    read_batches,
)
from lake.core.data.rows.row_groups import RowGroupChoice
from lake.core.data.rows.sorted_writer import open_ordered_writer, write_in_order
from lake.core.data.rows.writer import TableWriter, WriteSettings, open_writer
from lake.core.data.sorting.external_sort import with_keys
from lake.core.data.sorting.range_partitioning import KeySample, Ranges, SampledKeys
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.engine.shuffle import ShuffleBuffer, encode_report, received
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.opened_ahead import each_opened
from lake.core.maintain.compaction.verify import described
from lake.core.table.manifests.data_files import DataFile

# While one row group is encoded, the rows of the next are read.
_AHEAD_BYTES = 128 * 1024 * 1024
# Smaller batches are concatenated, because each batch costs memory and time.
_SMALL_ROWS = 16 * 1024
_SMALL_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask(PlainData):
    """Write or send a range of rows.

    Args:
        task: the task's number, part of file names.
        files: the slices to read.
        rows: the number of rows by the metadata, deleted or not.
        reading: the settings for reading.
        write: the settings for writing.
        verify: whether the content of the rows is hashed.
        first: the number of the group's first receiver.
        bounds: the bounds between the ranges of sort keys.
        parts: how many ranges each receiver writes.
        copied_bytes: row groups of at least this size are copied, if that is possible; None for none.
        most_copied_bytes: larger row groups are not copied.
        nan_counts: how many NaN each file has, by the id of the column; for copying.
    """

    task: int
    files: Sequence[FileSlice]
    rows: int
    reading: ReadSettings
    write: WriteSettings
    verify: bool
    first: int = 0
    bounds: Sequence[bytes] = ()
    parts: int = 1
    copied_bytes: int | None = None
    most_copied_bytes: int = 0
    nan_counts: Sequence[Mapping[int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveTask(PlainData):
    """Write the rows of one range; if `reading` is set, read them again to hash them."""

    task: int
    write: WriteSettings
    reading: ReadSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTask(PlainData):
    """Report `sampled` sort keys of the rows of files."""

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings
    order: RowOrder
    sampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareTask(PlainData):
    """Compare the rows of files before and after; `files` describes those after."""

    reading: ReadSettings
    before: Sequence[FileSlice]
    after: Sequence[FileSlice]
    files: Sequence[DataFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteReport(PlainData):
    """The number of rows read, the number of deleted rows that were left out, and the new files.

    `copied` is the number of row groups that were copied; `decoded` is that of other large ones, by the reason.
    """

    rows: int
    dropped: int
    files: Sequence[DataFile]
    copied: int = 0
    decoded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(PlainData):
    """The rows that a task sent, the deleted rows that it left out, and the content hash of the rows if asked for."""

    rows: int
    dropped: int
    content_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveReport(PlainData):
    """The files of one range, the content hash of their rows if asked for, and the reports of senders."""

    files: Sequence[DataFile]
    content_hash: str | None = None
    senders: Sequence[SendReport] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareReport(PlainData):
    """Whether the rows are the same; if so, `described` is an entry with the metrics of the rows after.

    `missing` contains the ids of columns and nested fields that a file before does not contain, and are read as NULL.
    """

    same: bool
    described: DataFile | None = None
    missing: Sequence[int] = ()


def rewrite(task: RewriteTask, context: TaskContext) -> Iterator[RewriteReport]:
    """Write a range of rows to new files, sorted if there is an order; reports the rows read and the files."""
    settings = task.write
    reading = task.reading
    content = ContentHash() if task.verify else None
    read = 0
    chosen = RowGroupChoice(
        task.files, task.nan_counts, task.copied_bytes or 0, task.most_copied_bytes
    )
    copies = task.copied_bytes is not None
    with open_ordered_writer(context, settings, task=task.task, copies=copies) as writer:
        if copies and isinstance(writer, TableWriter):
            read = _copy(chosen, writer, task, context)
        else:
            chosen.remaining += task.files
        slices = [*chosen.remaining, *chosen.copied]
        with closing(Deletes(context.storage, reading, slices)) as deletes:
            # Another thread decodes while this one encodes, so two cores work on one output file.
            copied = reading if task.verify else _keeping_dictionaries(reading, settings)
            batches = _like_first(_file_batches(chosen.remaining, copied, deletes, context))
            for batch in prefetch(_concatenated(batches), _AHEAD_BYTES):
                context.check_cancelled()
                if content is not None:
                    content.add(batch)
                writer.write(batch)
                read += batch.num_rows
                context.report(read, read / max(task.rows, 1))
            if content is not None:
                for batch in prefetch(_file_batches(chosen.copied, reading, deletes, context)):
                    content.add(batch)
        written = writer.close()
        if content is not None:
            _compare(content.text(), written, reading, context)
    yield RewriteReport(
        rows=read,
        dropped=deletes.dropped,
        files=written,
        copied=len(chosen.copied),
        decoded=chosen.reasons,
    )


def _copy(
    chosen: RowGroupChoice, writer: TableWriter, task: RewriteTask, context: TaskContext
) -> int:
    """Copy the row groups of files that can be copied, and return the number of their rows."""
    rows = 0
    # While one row group is written, the next is read.
    for found in prefetch(chosen.parts(context.storage, writer.model), _AHEAD_BYTES):
        context.check_cancelled()
        writer.copy_to(found.partition, found.part, found.nan_counts)
        rows += found.part.rows
        context.report(rows, rows / max(task.rows, 1))
    return rows


def sample(task: SampleTask, context: TaskContext) -> Iterator[SampledKeys]:
    """Report a sample of the sort keys of files, deleted rows included; reads only the key columns."""
    reading = task.reading
    order, keys = task.order, KeySample(task.sampled, task.task)
    for file in each_opened(context.storage, task.files):
        for batch in read_batches(context.storage, file, reading):
            context.check_cancelled()
            keys.add(order.keys(batch, reading.projection))
    yield keys.result()


def send(task: RewriteTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send each row of a range of files to the receiver of its key range.

    The group's first receiver gets a report of what was read.
    """
    settings, reading, files = task.write, task.reading, task.files
    order, ranges = settings.order or RowOrder(), Ranges(task.bounds, task.parts)
    content = ContentHash() if task.verify else None
    first = task.first * task.parts
    outbox = ShuffleBuffer(task.parts)
    rows = 0
    with closing(Deletes(context.storage, reading, files)) as deletes:
        batches = _concatenated(_file_batches(files, reading, deletes, context))
        for batch in prefetch(batches, _AHEAD_BYTES):
            context.check_cancelled()
            rows += batch.num_rows
            context.report(rows, rows / max(task.rows, 1))
            if content is not None:
                content.add(batch)
            for number, part in ranges.split(with_keys(batch, order, settings.schema)):
                yield from outbox.add(first + number, part)
    yield from outbox.drain()
    content_hash = None if content is None else content.text()
    report = SendReport(rows=rows, dropped=deletes.dropped, content_hash=content_hash)
    yield first, encode_report(report)


def receive(
    task: ReceiveTask, blobs: Iterator[bytes], context: TaskContext
) -> Iterator[ReceiveReport]:
    """Write the rows of one receiver's ranges in order; reports the files, and the senders' reports."""
    senders: list[SendReport] = []
    writer = open_writer(context.storage, task.write, task=task.task, attempt=context.attempt)
    with writer:
        rows = received(blobs, SendReport, senders)
        write_in_order(writer, rows, context.check_cancelled)
        written = writer.close()
        content_hash = None
        if task.reading is not None:
            slices = [FileSlice.of(file) for file in written]
            content_hash = _hash_of(slices, task.reading, context)
    yield ReceiveReport(files=written, content_hash=content_hash, senders=senders)


def compare(task: CompareTask, context: TaskContext) -> Iterator[CompareReport]:
    """Compare the rows of two lists of files, value by value, and return the metrics of the second list."""
    reading = task.reading
    before = _hash_of(task.before, reading, context)
    after = _hash_of(task.after, _without_deletes(reading), context)
    written = task.files
    entry, missing = None, set[int]()
    if before == after and written:
        rows = _rows_of(task.after, _without_deletes(reading), context)
        with closing(rows):
            entry = described(rows, reading.projection, written[0])
        wanted = {leaf.field_id for leaf in leaves(reading.projection)}
        for file in task.before:
            missing |= wanted - present_columns(context.storage, file, reading)
    yield CompareReport(same=before == after, described=entry, missing=sorted(missing))


def _compare(
    expected: str, written: Sequence[DataFile], reading: ReadSettings, context: TaskContext
) -> None:
    """Read the written files again and compare every value.

    Raises:
        LakeError: their rows differ from the rows read.
    """
    files = [FileSlice.of(file) for file in written]
    found = _hash_of(files, _without_deletes(reading), context)
    if found != expected:  # check: values-written
        raise LakeError(
            f"the content hash of the rows read is {expected}, of the rows written {found}; nothing was committed"
        )


def _hash_of(slices: Sequence[FileSlice], reading: ReadSettings, context: TaskContext) -> str:
    with closing(_rows_of(slices, reading, context)) as rows:
        return hash_all(rows)


def _rows_of(
    slices: Sequence[FileSlice], reading: ReadSettings, context: TaskContext
) -> Generator[pa.RecordBatch]:
    with closing(Deletes(context.storage, reading, slices)) as deletes:
        yield from prefetch(_file_batches(slices, reading, deletes, context))


def _without_deletes(reading: ReadSettings) -> ReadSettings:
    """Return the settings for reading files without deleted rows."""
    return replace(reading, deletes=(), key_types=None)


def _file_batches(
    files: Iterable[FileSlice], reading: ReadSettings, deletes: Deletes, context: TaskContext
) -> Iterator[pa.RecordBatch]:
    for file in deletes.each_opened(files):
        context.check_cancelled()
        yield from read_batches(context.storage, file, reading, deletes)


def _keeping_dictionaries(reading: ReadSettings, writing: WriteSettings) -> ReadSettings:
    """Return the settings for reading texts as dictionaries where only the writer of Parquet looks at them.

    Neither values nor their encoding by a dictionary are then computed for each row.
    """
    if writing.order is not None or writing.data_format != "parquet":
        return reading
    others = {item.source_id for item in writing.spec.fields}
    if reading.key_types is not None:
        others |= {item.field_id for item in reading.key_types.fields}
    texts = {
        item.field_id
        for item in reading.projection.fields
        if isinstance(item.field_type, StringType)
    }
    return replace(reading, dictionaries=frozenset(texts - others))


def _like_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give all batches the types of the first: a column is a dictionary in some files, and values in others."""
    schema = None
    for batch in batches:
        schema = batch.schema if schema is None else schema
        yield batch if batch.schema == schema else batch.cast(schema)


def _concatenated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Concatenate adjacent small batches."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        small.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _SMALL_ROWS or size >= _SMALL_BYTES:
            yield pa.concat_batches(small) if len(small) > 1 else batch
            small, rows, size = [], 0, 0
    if small:
        yield pa.concat_batches(small)
