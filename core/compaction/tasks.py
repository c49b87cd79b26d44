"""What a compaction runs on the engine: rewrite a range of rows, and compare rows before and after."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lake.core.compaction.verify import ContentHash, described, hash_all
from lake.core.deletes.apply import Deletes
from lake.core.engine.shuffle import ShuffleBuffer, claim, claimed
from lake.core.engine.tasks import TaskContext
from lake.core.errors import LakeError
from lake.core.manifests.data_files import DataFile
from lake.core.rows.reader import FileSlice, ReadSettings, prefetch, read_batches
from lake.core.rows.sorted_writer import OrderedWriter, open_ordered_writer
from lake.core.rows.writer import WriteSettings, open_writer
from lake.core.sorting.external_sort import with_keys
from lake.core.sorting.range_partitioning import KeySample, Ranges, decoded
from lake.core.sorting.sort_keys import RowOrder

# While a row group is encoded, the next one's rows are read.
_AHEAD_BYTES = 128 * 1024 * 1024
# Smaller batches are put together: each costs memory and time of its own.
_SMALL_ROWS = 16 * 1024
_SMALL_BYTES = 2 * 1024 * 1024
_REPORTS = 50


def rewrite(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Write a range of rows to new files, as they come or sorted; reports rows as they are read, then the files."""
    settings = WriteSettings.from_plain(payload["write"])
    reading = ReadSettings.from_plain(payload["reading"])
    files = [FileSlice.from_plain(file) for file in payload["files"]]
    content = ContentHash() if payload["verify"] else None
    read = reported = 0
    with (
        open_ordered_writer(context, settings, task=payload["task"]) as writer,
        closing(Deletes(context.storage, reading, files)) as deletes,
    ):
        # One thread decodes while this one encodes: both cores work on one output file.
        batches = _together(_of_files(files, reading, deletes, context))
        for batch in prefetch(batches, _AHEAD_BYTES):
            context.check_cancelled()
            if content is not None:
                content.add(batch)
            writer.write(batch)
            read += batch.num_rows
            if (read - reported) * _REPORTS >= payload["rows"]:
                yield {"rows": read - reported}
                reported = read
        written = writer.close()
        if content is not None:
            _compare(content.text(), written, reading, context)
    yield {
        "rows": read - reported,
        "dropped": deletes.dropped,
        "files": [file.to_plain() for file in written],
    }


def sample(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Report some keys of the rows of files, deleted or not; reads their columns only."""
    reading = ReadSettings.from_plain(payload["reading"])
    order, found = (
        RowOrder.from_plain(payload["order"]),
        KeySample(payload["sampled"], payload["task"]),
    )
    files = [FileSlice.from_plain(file) for file in payload["files"]]
    for file in files:
        for batch in read_batches(context.storage, file, reading):
            context.check_cancelled()
            found.add(order.keys(batch, reading.projection))
    yield found.to_plain()


def send(payload: Mapping[str, Any], context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send each row of a range of files to the task in whose range of keys it lies.

    The group's first such task is told what was read. The payload is that of `rewrite`, and ``first`` (the
    number of the group's first receiver) and ``bounds`` (where ranges of keys are cut).
    """
    settings = WriteSettings.from_plain(payload["write"])
    reading = ReadSettings.from_plain(payload["reading"])
    order, ranges = settings.order or RowOrder(), Ranges(decoded(payload["bounds"]))
    files = [FileSlice.from_plain(file) for file in payload["files"]]
    content = ContentHash() if payload["verify"] else None
    first: int = payload["first"]
    outbox = ShuffleBuffer(first + len(payload["bounds"]) + 1)
    rows = 0
    with closing(Deletes(context.storage, reading, files)) as deletes:
        batches = _together(_of_files(files, reading, deletes, context))
        for batch in prefetch(batches, _AHEAD_BYTES):
            context.check_cancelled()
            rows += batch.num_rows
            if content is not None:
                content.add(batch)
            for number, part in ranges.split(with_keys(batch, order, settings.schema)):
                yield from outbox.add(first + number, part)
    yield from outbox.rest()
    told = {"rows": rows, "dropped": deletes.dropped, "hash": content and content.text()}
    yield first, claim(told)


def receive(
    payload: Mapping[str, Any], blobs: Iterator[bytes], context: TaskContext
) -> Iterator[Mapping[str, Any]]:
    """Write the rows that were sent to one task in order; reports the files, and what senders told."""
    settings = WriteSettings.from_plain(payload["write"])
    claims = []
    files = open_writer(context.storage, settings, task=payload["task"], attempt=context.attempt)
    order = settings.order or RowOrder()
    with OrderedWriter(files, order, settings.schema, context.check_cancelled) as writer:
        for blob in blobs:
            context.check_cancelled()
            stream = pa.ipc.open_stream(blob)
            if (told := claimed(stream)) is not None:
                claims.append(told)
            for batch in stream:
                writer.write_keyed(batch)
        written = writer.close()
        plain = [file.to_plain() for file in written]
        found = None
        if payload["reading"] is not None:
            slices = [FileSlice.of(file).to_plain() for file in written]
            found = _hash_of(slices, ReadSettings.from_plain(payload["reading"]), context)
    yield {"claims": claims, "files": plain, "hash": found}


def compare(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Compare the rows of two lists of files, value by value, and describe those of the second list."""
    reading = ReadSettings.from_plain(payload["reading"])
    before = _hash_of(payload["before"], reading, context)
    after = _hash_of(payload["after"], _without_deletes(reading), context)
    written = [DataFile.from_plain(file) for file in payload["files"]]
    entry = None
    if before == after and written:
        rows = _rows_of(payload["after"], _without_deletes(reading), context)
        with closing(rows):
            entry = described(rows, reading.projection, written[0]).to_plain()
    yield {"same": before == after, "described": entry}


def _compare(
    expected: str, written: list[DataFile], reading: ReadSettings, context: TaskContext
) -> None:
    """Read the written files again and compare every value.

    Raises:
        LakeError: they hold other rows than were read.
    """
    files = [FileSlice.of(file).to_plain() for file in written]
    found = _hash_of(files, _without_deletes(reading), context)
    if found != expected:
        raise LakeError(f"the content hash was {expected} and is {found}: nothing was committed")


def _hash_of(
    files: Iterable[Mapping[str, Any]], reading: ReadSettings, context: TaskContext
) -> str:
    with closing(_rows_of(files, reading, context)) as rows:
        return hash_all(rows)


def _rows_of(
    files: Iterable[Mapping[str, Any]], reading: ReadSettings, context: TaskContext
) -> Generator[pa.RecordBatch]:
    slices = [FileSlice.from_plain(file) for file in files]
    with closing(Deletes(context.storage, reading, slices)) as deletes:
        yield from prefetch(_of_files(slices, reading, deletes, context))


def _without_deletes(reading: ReadSettings) -> ReadSettings:
    """Return how files are read that hold no deleted row."""
    return replace(reading, deletes=(), key_types=None)


def _of_files(
    files: Iterable[FileSlice], reading: ReadSettings, deletes: Deletes, context: TaskContext
) -> Iterator[pa.RecordBatch]:
    for file in files:
        context.check_cancelled()
        yield from read_batches(context.storage, file, reading, deletes)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put neighbouring small batches together."""
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
