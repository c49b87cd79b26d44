"""Find the table's rows with the source's keys, reading only the key columns, and delete them."""

from __future__ import annotations

import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lake.core.deletes.apply import Deletes
from lake.core.deletes.row_positions import RowPositions
from lake.core.deletes.writers import DeletedRows, open_position_writer
from lake.core.engine.tasks import TaskContext
from lake.core.errors import LakeError
from lake.core.ingest.checksummed_batches import batches_in
from lake.core.keys.encoding import Int64s, hash_keys, partition_of
from lake.core.keys.extraction import columns_of, cut
from lake.core.keys.index import NOT_FOUND, KeyIndex
from lake.core.manifests.data_files import DataFile
from lake.core.plain import PlainData
from lake.core.properties.table_properties import COPY_ON_WRITE
from lake.core.rows.reader import FileSlice, ReadSettings, read_positions
from lake.core.rows.writer import WriteSettings, open_writer

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
        mode: how rows are deleted.
        format_version: the table's.
        writing: the settings for writing.
        rewriting: the settings for reading all columns, for copy-on-write.
    """

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings
    ids: Sequence[int]
    buckets: Sequence[str | None]
    mode: str
    format_version: int
    writing: WriteSettings
    rewriting: ReadSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchReport(PlainData):
    """The keys that a task found in its data files, and the files that it wrote to delete their rows.

    Args:
        hit: the data files that contain some of the keys.
        kept: new data files with the other rows of these files, for copy-on-write.
        deletes: new delete files.
        found: for each bucket, a serialised bitmap of the numbers of the keys that were found.
        found_again: the same for keys that were found more than once.
    """

    hit: Sequence[str] = ()
    kept: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    found: Sequence[bytes]
    found_again: Sequence[bytes]


def match(task: MatchTask, context: TaskContext) -> Iterator[MatchReport]:
    """Find the rows of data files that have the source's keys, and delete them."""
    files, reading = task.files, task.reading
    kept: list[DataFile] = []
    deletes: list[DataFile] = []
    with closing(Deletes(context.storage, reading, files)) as known:
        found = _find(task, known, context)
        hit = [number for number, positions in enumerate(found.positions) if len(positions)]
        if hit and task.mode == COPY_ON_WRITE:
            kept = _copy(task, found, context)
        elif hit:
            deletes = _delete(
                task, [(files[number], found.positions[number]) for number in hit], known, context
            )
    yield MatchReport(
        hit=[files[number].path for number in hit],
        kept=kept,
        deletes=deletes,
        found=[bits.serialize() for bits in found.seen.once],
        found_again=[bits.serialize() for bits in found.seen.again],
    )


class _Chunk(NamedTuple):
    """Rows of data files: the file's number, the position in the file, and the key."""

    files: Int64s
    positions: Int64s
    keys: pa.RecordBatch


@dataclass(slots=True)
class _Seen:
    """The keys of each bucket that were found, and those found more than once."""

    once: list[BitMap]
    again: list[BitMap]

    def add(self, bucket: int, ordinals: Int64s) -> None:
        distinct, counts = np.unique(ordinals, return_counts=True)
        new = _bitmap(distinct)
        self.again[bucket] |= (self.once[bucket] & new) | _bitmap(distinct[counts > 1])
        self.once[bucket] |= new


@dataclass(slots=True)
class _Found:
    """For each data file, the positions of its rows with the source's keys, and its number of rows."""

    positions: list[RowPositions]
    rows: list[int]
    seen: _Seen = field(default_factory=lambda: _Seen([], []))


def _bitmap(values: Int64s) -> BitMap:
    return BitMap(array.array("I", values.astype(np.uint32).tobytes()))


def _find(task: MatchTask, known: Deletes, context: TaskContext) -> _Found:
    files, reading = task.files, task.reading
    buckets = _Buckets(context, task.buckets)
    seen = _Seen([BitMap() for _ in buckets.paths], [BitMap() for _ in buckets.paths])
    found = _Found([RowPositions() for _ in files], [0] * len(files), seen)
    chunk_rows = 1 if len(buckets.paths) == 1 else _CHUNK_ROWS
    columns = columns_of(reading.projection, task.ids)

    def rows_of(number: int, file: FileSlice) -> Iterator[_Chunk]:
        for positions, batch in read_positions(context.storage, file, reading, known):
            found.rows[number] += batch.num_rows
            yield _Chunk(np.full(batch.num_rows, number), positions, cut(batch, columns))

    parts = (part for number, file in enumerate(files) for part in rows_of(number, file))
    total_rows = max(sum(file.record_count for file in files), 1)
    for chunk in _chunks(parts, chunk_rows):
        context.check_cancelled()
        context.report(sum(found.rows), sum(found.rows) / total_rows)
        for bucket, rows, ordinals in buckets.find(chunk.keys):
            seen.add(bucket, ordinals)
            numbers, positions = chunk.files[rows], chunk.positions[rows]
            for number in np.unique(numbers).tolist():
                found.positions[number].add(positions[numbers == number])
    return found


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

    def __init__(self, context: TaskContext, paths: Sequence[str | None]) -> None:
        self.paths = paths
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
            self._loaded = None
            path = self.paths[bucket] or ""
            batches = list(batches_in(self._context.storage, path))
            self._loaded = bucket, KeyIndex.build(pa.Table.from_batches(batches))
        return self._loaded[1]


def _delete(
    task: MatchTask,
    hit: Sequence[tuple[FileSlice, RowPositions]],
    known: Deletes,
    context: TaskContext,
) -> list[DataFile]:
    """Write the deletes of rows; deletion vectors also contain the rows deleted before."""
    settings = task.writing
    names = settings.file_names(task=task.task, attempt=context.attempt)
    with open_position_writer(
        context.storage, settings, format_version=task.format_version, names=names
    ) as writer:
        for file, positions in hit:
            context.check_cancelled()
            writer.add(
                DeletedRows(
                    path=file.path,
                    spec_id=file.spec_id,
                    partition=file.partition,
                    positions=positions,
                    earlier=known.positions_of(file),
                )
            )
        return writer.close()


def _copy(task: MatchTask, found: _Found, context: TaskContext) -> list[DataFile]:
    """Write the remaining rows of the files that contain matching rows."""
    files, settings, reading = task.files, task.writing, task.rewriting
    if reading is None:
        raise ValueError("copy-on-write needs the settings for reading all columns")
    hit = [number for number, positions in enumerate(found.positions) if len(positions)]
    with (
        open_writer(context.storage, settings, task=task.task, attempt=context.attempt) as writer,
        closing(Deletes(context.storage, reading, [files[number] for number in hit])) as deletes,
    ):
        for number in hit:
            removed = found.positions[number].to_numpy()
            for positions, batch in read_positions(
                context.storage, files[number], reading, deletes
            ):
                context.check_cancelled()
                writer.write(batch.filter(pa.array(np.isin(positions, removed, invert=True))))
        kept = writer.close()
    expected = sum(found.rows[number] - len(found.positions[number]) for number in hit)
    if writer.rows != expected:
        raise LakeError(f"{expected} rows must be kept, but {writer.rows} were written")
    return kept
