"""Find the table's rows with the source's keys, reading only the columns that are compared, and delete them."""

from __future__ import annotations

import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lake.core.base.arrow import Int64s, Mask
from lake.core.base.errors import LakeError
from lake.core.base.plain import PlainData
from lake.core.data.deletes.apply import Deletes
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.written_positions import found_rows, write_positions
from lake.core.data.keys.encoding import hash_keys, partition_of
from lake.core.data.keys.extraction import columns_of, cut
from lake.core.data.keys.index import NOT_FOUND, KeyIndex
from lake.core.data.keys.key_set import KeySet
from lake.core.data.keys.row_keys import RowKeys
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_positions
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.checksummed_batches import batches_in
from lake.core.load.upsert.new_values import MergedRows, NewValues
from lake.core.load.upsert.options import NONE
from lake.core.spec.properties.table_properties import COPY_ON_WRITE
from lake.core.table.manifests.data_files import DataFile

# With several buckets, each bucket is loaded once per chunk of about this many rows of the table.
_CHUNK_ROWS = 4 * 1024 * 1024
_CHUNK_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchTask(PlainData):
    """Find the rows of data files that have the source's keys, and delete them.

    Args:
        task: the task's number, part of file names.
        files: the data files.
        reading: the settings for reading their key columns.
        ids: columns of the key.
        buckets: files of the source's keys, by bucket; None for a bucket without keys.
        mode: how rows are deleted; `NONE` to find the keys only.
        sequence: a row is not deleted if this column is greater than in the source; None to delete every row.
        format_version: the table's.
        writing: the settings for writing.
        rewriting: the settings for reading all columns, for copy-on-write and for merging.
        merged: if rows are merged column by column, the files of merged rows, by bucket as ``buckets``; else empty.
        overwrites: ids of the columns in which NULL replaces the table's value.
    """

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings
    ids: Sequence[int]
    buckets: Sequence[str | None]
    mode: str
    sequence: int | None = None
    format_version: int
    writing: WriteSettings
    rewriting: ReadSettings | None = None
    merged: Sequence[str | None] = ()
    overwrites: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchReport(PlainData):
    """The keys that a task found in its data files, and the files that it wrote to delete their rows.

    Args:
        hit: the data files that contain some of the keys.
        kept: new data files with the other rows of these files, for copy-on-write, and with merged rows.
        deletes: new delete files.
        found: for each bucket, a serialised bitmap of the numbers of the keys that were found.
        found_again: the same for keys that were found more than once.
        stale: the same for keys of which a row has a greater sequence than the source's.
        stale_rows: if rows are merged, the number of source rows that are older than the table's row.
    """

    hit: Sequence[str] = ()
    kept: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    found: Sequence[bytes]
    found_again: Sequence[bytes]
    stale: Sequence[bytes]
    stale_rows: int = 0


def match(task: MatchTask, context: TaskContext) -> Iterator[MatchReport]:
    """Find the rows of data files that have the source's keys, and delete them."""
    task = _with_keys(task, context.shared)
    files, reading = task.files, task.reading
    kept: list[DataFile] = []
    deletes: list[DataFile] = []
    with closing(Deletes(context.storage, reading, files)) as known:
        found = _find(task, known, context)
        hit = [number for number, positions in enumerate(found.positions) if len(positions)]
        if task.mode == NONE:
            hit = []
        elif hit and task.mode == COPY_ON_WRITE:
            kept = _copy(task, found, context)
        elif hit:
            deletes = write_positions(
                context,
                task.writing,
                found_rows(known, [(files[number], found.positions[number]) for number in hit]),
                task=task.task,
                format_version=task.format_version,
            )
            kept = _merge(task, found, hit, context) if task.merged else []
    yield MatchReport(
        hit=[files[number].path for number in hit],
        kept=kept,
        deletes=deletes,
        found=[bits.serialize() for bits in found.seen.once],
        found_again=[bits.serialize() for bits in found.seen.again],
        stale=[bits.serialize() for bits in found.seen.stale],
        stale_rows=found.stale_rows,
    )


def _with_keys(task: MatchTask, shared: bytes) -> MatchTask:
    """Return a task that skips row groups without keys, unless all rows must be counted to be copied."""
    if not shared or task.mode == COPY_ON_WRITE:
        return task
    keys = KeySet.from_bytes(shared)
    row_keys = RowKeys(keys.types, keys)
    everything = task.rewriting and replace(task.rewriting, keys=row_keys)
    return replace(task, reading=replace(task.reading, keys=row_keys), rewriting=everything)


class _Chunk(NamedTuple):
    """Rows of data files: the file's number, the position in the file, the key, and then the sequence, if any."""

    files: Int64s
    positions: Int64s
    keys: pa.RecordBatch


@dataclass(slots=True)
class _Seen:
    """The keys of each bucket that were found, those found more than once, and those with a newer row."""

    once: list[BitMap]
    again: list[BitMap]
    stale: list[BitMap]

    @classmethod
    def empty(cls, buckets: int) -> Self:
        """Return the value before any key was found."""
        return cls(*([BitMap() for _ in range(buckets)] for _ in range(3)))

    def add(self, bucket: int, ordinals: Int64s) -> None:
        distinct, counts = np.unique(ordinals, return_counts=True)
        new = _bitmap(distinct)
        self.again[bucket] |= (self.once[bucket] & new) | _bitmap(distinct[counts > 1])
        self.once[bucket] |= new


@dataclass(slots=True)
class _Found:
    """For each data file, the positions of its rows with the source's keys, and its number of rows.

    If rows are merged: the new values by file, and the number of source rows that are older than the table's.
    """

    positions: list[RowPositions]
    rows: list[int]
    seen: _Seen = field(default_factory=lambda: _Seen.empty(0))
    values: dict[int, list[tuple[Int64s, pa.Table]]] = field(default_factory=dict)
    stale_rows: int = 0


def _bitmap(values: Int64s) -> BitMap:
    return BitMap(array.array("I", values.astype(np.uint32).tobytes()))


def _find(task: MatchTask, known: Deletes, context: TaskContext) -> _Found:
    files, reading = task.files, task.reading
    width = len(task.ids)
    buckets = _Buckets(context, task, width)
    seen = _Seen.empty(len(buckets.paths))
    found = _Found([RowPositions() for _ in files], [0] * len(files), seen)
    chunk_rows = 1 if len(buckets.paths) == 1 else _CHUNK_ROWS
    compared = [] if task.sequence is None else [task.sequence]
    columns = columns_of(reading.projection, [*task.ids, *compared])

    def rows_of(number: int, file: FileSlice) -> Iterator[_Chunk]:
        for positions, batch in read_positions(context.storage, file, reading, known):
            found.rows[number] += batch.num_rows
            yield _Chunk(np.full(batch.num_rows, number), positions, cut(batch, columns))

    ahead = enumerate(known.each_opened(files))
    parts = (part for number, file in ahead for part in rows_of(number, file))
    total_rows = max(sum(file.record_count for file in files), 1)
    for chunk in _chunks(parts, chunk_rows):
        context.check_cancelled()
        context.report(sum(found.rows), sum(found.rows) / total_rows)
        for bucket, rows, ordinals in buckets.find(chunk.keys.select(range(width))):
            seen.add(bucket, ordinals)
            sequences = chunk.keys.column(width).take(pa.array(rows)) if compared else None
            if buckets.merged is not None:
                chosen, older = buckets.merged.choose(ordinals, sequences)
                found.stale_rows += older
                newer = chosen < 0
                _keep_values(found, chunk, rows[~newer], buckets.merged.take(chosen[~newer]))
            elif sequences is not None:
                newer = buckets.newer(ordinals, sequences)
            else:
                newer = np.zeros(len(rows), np.bool_)
            seen.stale[bucket] |= _bitmap(ordinals[newer])
            # Only these are deleted.
            _keep_positions(found, chunk, rows[~newer])
    return found


def _keep_positions(found: _Found, chunk: _Chunk, rows: Int64s) -> None:
    numbers, positions = chunk.files[rows], chunk.positions[rows]
    for number in np.unique(numbers).tolist():
        found.positions[number].add(positions[numbers == number])


def _keep_values(found: _Found, chunk: _Chunk, rows: Int64s, values: pa.Table) -> None:
    numbers, positions = chunk.files[rows], chunk.positions[rows]
    for number in np.unique(numbers).tolist():
        of_file = numbers == number
        part = values if of_file.all() else values.filter(pa.array(of_file))
        found.values.setdefault(number, []).append((positions[of_file], part))


def _chunks(parts: Iterator[_Chunk], rows: int) -> Iterator[_Chunk]:
    """Concatenate batches until they have ``rows`` rows or `_CHUNK_BYTES`."""
    pending: list[_Chunk] = []
    for part in parts:
        pending.append(part)
        full = sum(chunk.keys.nbytes for chunk in pending) >= _CHUNK_BYTES
        if full or sum(len(chunk.files) for chunk in pending) >= rows:
            yield _joined(pending)
            pending = []
    if pending:
        yield _joined(pending)


def _joined(parts: Sequence[_Chunk]) -> _Chunk:
    if len(parts) == 1:
        return parts[0]
    return _Chunk(
        np.concatenate([part.files for part in parts]),
        np.concatenate([part.positions for part in parts]),
        pa.concat_batches([part.keys for part in parts]),
    )


class _Buckets:
    """The source's keys; one bucket at a time is in memory."""

    def __init__(self, context: TaskContext, task: MatchTask, width: int) -> None:
        self.paths = task.buckets
        # The merged rows of the bucket that was found last; None if rows are not merged.
        self.merged: MergedRows | None = None
        self._merged_paths = task.merged
        self._width = width
        self._sequences: pa.ChunkedArray | None = None
        self._context = context
        self._loaded: tuple[int, KeyIndex] | None = None

    def find(self, keys: pa.RecordBatch) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Yield (bucket, rows of the batch, numbers of the equal keys in the bucket)."""
        if len(self.paths) == 1:
            yield from self._found(0, keys, None)
            return
        numbers = partition_of(hash_keys(keys), len(self.paths))
        for bucket, path in enumerate(self.paths):
            if path is None:
                continue
            self._context.check_cancelled()
            rows = np.flatnonzero(numbers == bucket)
            if len(rows):
                yield from self._found(bucket, keys.take(pa.array(rows)), rows)

    def _found(
        self, bucket: int, keys: pa.RecordBatch, rows: Int64s | None
    ) -> Iterator[tuple[int, Int64s, Int64s]]:
        ordinals = self._index(bucket).find(keys)
        hit = np.flatnonzero(ordinals != NOT_FOUND)
        if len(hit):
            yield bucket, hit if rows is None else rows[hit], ordinals[hit]

    def _index(self, bucket: int) -> KeyIndex:
        if self._loaded is None or self._loaded[0] != bucket:
            self._loaded = self.merged = None
            path = self.paths[bucket] or ""
            batches = list(batches_in(self._context.storage, path))
            table = pa.Table.from_batches(batches)
            keys = table.select(range(self._width))
            self._sequences = None
            if table.num_columns > self._width:
                self._sequences = table.column(self._width)
            self._loaded = bucket, KeyIndex.build(keys)
            if self._merged_paths:
                self.merged = MergedRows(self._context.storage, self._merged_paths[bucket] or "")
        return self._loaded[1]

    def newer(self, ordinals: Int64s, values: pa.Array) -> Mask:
        """Return which values of the table are greater than those of the source; NULL and NaN are the least.

        Args:
            ordinals: the numbers of the source's keys in the bucket that was found last.
            values: the sequence of the table's row with each of these keys.
        """
        if self._sequences is None:
            raise ValueError("the files of keys have no sequence")
        ours = self._sequences.take(pa.array(ordinals)).combine_chunks()
        known = values.is_valid()
        if pa.types.is_floating(values.type):
            known = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(values), True)))  # noqa: FBT003
        greater = pc.fill_null(pc.greater(values, ours), True)  # noqa: FBT003 - the source's is NULL
        mask: Mask = pc.and_(known, greater).to_numpy(zero_copy_only=False)
        return mask


def _copy(task: MatchTask, found: _Found, context: TaskContext) -> list[DataFile]:
    """Write the remaining rows of the files that contain matching rows; merged rows are written in their place."""
    files, settings, reading = task.files, task.writing, task.rewriting
    if reading is None:
        raise ValueError("copy-on-write needs the settings for reading all columns")
    hit = [number for number, positions in enumerate(found.positions) if len(positions)]
    read = 0
    with (
        open_writer(context.storage, settings, task=task.task, attempt=context.attempt) as writer,
        closing(Deletes(context.storage, reading, [files[number] for number in hit])) as deletes,
    ):
        for number in deletes.each_opened(hit, files.__getitem__):
            removed = found.positions[number].to_numpy()
            values = NewValues(found.values[number]) if task.merged else None
            for positions, batch in read_positions(
                context.storage, files[number], reading, deletes
            ):
                context.check_cancelled()
                read += batch.num_rows
                if values is not None:
                    writer.write(_with_values(task, values, batch, positions)[1])
                else:
                    writer.write(batch.filter(pa.array(np.isin(positions, removed, invert=True))))
        kept = writer.close()
    # With a filter, only the rows that match it were counted.
    rows = read if task.reading.row_filter else sum(found.rows[number] for number in hit)
    expected = rows
    if not task.merged:
        expected -= sum(len(found.positions[number]) for number in hit)
    if writer.rows != expected:
        raise LakeError(f"{expected} rows must be kept, but {writer.rows} were written")
    return kept


def _merge(
    task: MatchTask, found: _Found, hit: Sequence[int], context: TaskContext
) -> list[DataFile]:
    """Write the matching rows with their new values."""
    files, settings, reading = task.files, task.writing, task.rewriting
    if reading is None:
        raise ValueError("merging needs the settings for reading all columns")
    with (
        open_writer(context.storage, settings, task=task.task, attempt=context.attempt) as writer,
        closing(Deletes(context.storage, reading, [files[number] for number in hit])) as deletes,
    ):
        for number in deletes.each_opened(hit, files.__getitem__):
            values = NewValues(found.values[number])
            for positions, batch in read_positions(
                context.storage, files[number], reading, deletes
            ):
                context.check_cancelled()
                changed, rows = _with_values(task, values, batch, positions)
                writer.write(rows.filter(pa.array(changed)))
        merged = writer.close()
    expected = sum(len(found.positions[number]) for number in hit)
    if writer.rows != expected:
        raise LakeError(f"{expected} rows must be merged, but {writer.rows} were written")
    return merged


def _with_values(
    task: MatchTask, values: NewValues, batch: pa.RecordBatch, positions: Int64s
) -> tuple[Mask, pa.RecordBatch]:
    schema = task.writing.schema
    return values.put_into(batch, positions, schema=schema, overwrites=task.overwrites)
