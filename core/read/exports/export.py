"""Write rows to a file, a folder or a stream; they are read in this process or by the engine's tasks."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.errors import StoppedError
from lake.core.base.outcome import MOST_SHOWN, PREVIEW_ROWS
from lake.core.base.plain import PlainData
from lake.core.base.progress import Meter, shown
from lake.core.data.rows.reader import prefetch
from lake.core.engine.inline import InlineEngine
from lake.core.engine.selection import engine_name
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.tasks import Engine, Payload, Task, TaskContext, TaskFunction
from lake.core.io.storage.atomic_files import flush
from lake.core.read.exports.destinations import PART, Output, opened, refuse_inside, replacing
from lake.core.read.exports.facts import ReadResult
from lake.core.read.exports.formats import (
    ARROW_STREAM,
    plain_rows,
    with_types,
    writing,
)
from lake.core.spec.types.arrow_schema import PlainSchema, arrow_schema
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session

# Counters that a reader reports in addition to its rows, e.g. the number of deleted rows, by name.
Noted = Counter[str]


class ReadOptions(Protocol):
    """The options that apply to every source of rows."""

    @property
    def limit(self) -> int | None:
        """The maximum number of rows; None for all."""


class ReadPlan(Protocol):
    """A plan for reading rows."""

    @property
    def table(self) -> Table:
        """The table of the rows."""

    @property
    def projection(self) -> Schema:
        """The columns of the rows."""

    @property
    def options(self) -> ReadOptions:
        """The user's options."""

    @property
    def bytes(self) -> int:
        """The bytes of the files to read."""

    @property
    def records(self) -> int:
        """The number of rows of these files by their metadata, deleted or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(PlainData):
    """The file that a task writes: its path, format and columns."""

    path: str
    format: str
    projection: PlainSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport(PlainData):
    """A file that a task wrote, its rows and bytes, and the reader's counters; without rows there is no file."""

    path: str
    rows: int
    size_bytes: int
    noted: Mapping[str, int] = field(default_factory=dict)


class RowSource(Protocol[Payload]):
    """Rows that can be read in this process or by tasks, in the same order."""

    @property
    def plan(self) -> ReadPlan:
        """The plan for reading."""

    @property
    def task(self) -> TaskFunction[Payload, PartReport]:
        """The function that the engine runs with a payload: it calls `write_part`."""

    @property
    def shared(self) -> bytes:
        """Data that every task receives; see `lake.core.engine.tasks.Engine.run`."""

    def stream(self, noted: Noted, wanted: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, and add the counters to ``noted`` at the end of each part.

        If only a number of rows is ``wanted``, less is read ahead of the rows.
        """

    def tasks(self, part: Callable[[int], Part]) -> Iterator[Task[Payload]]:
        """Yield the tasks; ``part`` returns the file for a task's number."""

    def check(self, rows: int, noted: Noted) -> None:
        """Raise an error if not all rows were read."""


def first_rows(source: RowSource[Any]) -> list[dict[str, Any]]:
    """Read the rows that are shown, in this process, as JSON-ready values."""
    limit = source.plan.options.limit
    wanted = PREVIEW_ROWS if limit is None else min(limit, MOST_SHOWN)
    rows: list[dict[str, Any]] = []
    with closing(_stream(source, Counter(), wanted)) as batches:
        for batch in batches:
            rows += plain_rows(batch, source.plan.projection)
    return rows


def read_rows(source: RowSource[Any]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the options ask for, read in this process.

    Raises:
        CorruptFileError: a file cannot be read, or not all rows were read.
    """
    noted: Noted = Counter()
    rows = 0
    with closing(_stream(source, noted, source.plan.options.limit)) as batches:
        for batch in batches:
            rows += batch.num_rows
            yield batch
    source.check(rows, noted)


def emit(session: Session, source: RowSource[Any], output: Output) -> tuple[ReadResult, Noted]:
    """Write all rows; return the totals of the output and the reader's counters.

    Raises:
        RefusedError: the output is inside the table.
        CorruptFileError: a file cannot be read; no incomplete output remains.
        BadInputError: the output cannot be written.
    """
    refuse_inside(output.path, source.plan.table)
    noted: Noted = Counter()
    if output.single:
        with opened(output) as sink:
            batches = _all_rows(session, source, output, noted)
            rows = _write_rows(source, batches, output.format, sink)
            source.check(rows, noted)
        kept = output.stream is None and not output.is_device
        written = os.path.getsize(output.path) if kept else None
        return ReadResult(rows=rows, bytes_written=written, files=int(kept)), noted
    with replacing(output) as temporary:
        os.makedirs(temporary)
        parts = _write_folder(session, source, output, temporary, noted)
    result = ReadResult(
        rows=sum(part.rows for part in parts),
        bytes_written=sum(part.size_bytes for part in parts),
        files=len(parts),
    )
    return result, noted


# One stream of rows


def _write_rows(
    source: RowSource[Any], batches: Generator[pa.RecordBatch], format_name: str, stream: Any
) -> int:
    rows = 0
    with closing(batches), writing(format_name, stream, source.plan.projection) as sink:
        for batch in batches:
            sink.write(batch)
            rows += batch.num_rows
    return rows


def _all_rows(
    session: Session, source: RowSource[Any], output: Output, noted: Noted
) -> Generator[pa.RecordBatch]:
    """Yield all rows in their order."""
    limit = source.plan.options.limit
    engine = None if limit is not None else _engine(session, source)
    if engine is None or isinstance(engine, InlineEngine):
        yield from _progressing(session, source, _stream(source, noted, limit))
        return
    beside = os.path.dirname(os.path.abspath(output.path)) if output.path else None
    stored = arrow_schema(source.plan.projection)
    with tempfile.TemporaryDirectory(prefix=".lake-scan-", dir=beside) as folder:
        tasks = _tasks(source, ARROW_STREAM, folder)
        with closing(_run(session, source, engine, tasks)) as results:
            for part in _in_order(results):
                noted.update(part.noted)
                if part.rows:
                    with pa.OSFile(part.path) as file:
                        yield from (with_types(batch, stored) for batch in pa.ipc.open_stream(file))
                    os.unlink(part.path)


def _engine(session: Session, source: RowSource[Any]) -> Engine:
    """Return the engine for reading; Spark only if its tasks can write files on this machine."""
    settings = session.settings
    if engine_name(settings.engine, source.plan.bytes, settings) != InlineEngine.name:
        local = SparkConf.of(settings.master, settings.spark_conf).is_local
        if settings.remote or not local:
            session.warn(
                "the output is on this machine, so rows are read in this process, not on the cluster"
            )
            return InlineEngine()
    return session.engine(source.plan.bytes)


def _progressing(
    session: Session, source: RowSource[Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    per_row = source.plan.bytes / max(source.plan.records, 1)
    meter = Meter("reading", total_bytes=source.plan.bytes)
    with closing(batches), shown(session.progress, meter):  # type: ignore[type-var]
        for batch in batches:
            meter.advance(rows=batch.num_rows, done_bytes=int(per_row * batch.num_rows))
            yield batch


def _in_order(results: Iterable[tuple[int, PartReport]]) -> Iterator[PartReport]:
    """Yield parts in the order of their numbers, each as soon as all earlier parts have finished."""
    finished: dict[int, PartReport] = {}
    following = 0
    for number, part in results:
        finished[number] = part
        while following in finished:
            yield finished.pop(following)
            following += 1


def _stream(source: RowSource[Any], noted: Noted, wanted: int | None) -> Generator[pa.RecordBatch]:
    """Yield some rows in their order, or all; those that are not wanted are not read ahead either."""
    return prefetch(_limited(source.stream(noted, wanted), wanted))


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    remaining = limit
    with closing(batches):  # type: ignore[type-var]
        for batch in batches if limit != 0 else ():
            taken = batch if remaining is None else batch.slice(0, remaining)
            yield taken
            remaining = None if remaining is None else remaining - taken.num_rows
            if remaining == 0:
                return


# A folder of files, one per task


def _write_folder(
    session: Session, source: RowSource[Any], output: Output, folder: str, noted: Noted
) -> list[PartReport]:
    """Write parts on the engine; files without rows are not kept, unless no file has rows: then one is kept."""
    filled: list[PartReport] = []
    limit = source.plan.options.limit
    if limit is None:
        filled = write_parts(session, source, folder, output.format, noted)
        source.check(sum(part.rows for part in filled), noted)
    if filled:
        return filled
    path = _part_path(folder, 0, output.format)
    batches = _no_rows() if limit is None else _stream(source, noted, limit)
    with open(path, "wb") as file:
        rows = _write_rows(source, batches, output.format, file)
    flush(path)
    return [PartReport(path=path, rows=rows, size_bytes=os.path.getsize(path))]


def write_parts(
    session: Session, source: RowSource[Any], folder: str, format_name: str, noted: Noted
) -> list[PartReport]:
    """Write all rows to files in a folder on the engine, and flush each file to the disk.

    Returns: the files with rows, in the order of the tasks; files without rows are not kept.
    """
    tasks = _tasks(source, format_name, folder)
    with closing(_run(session, source, _engine(session, source), tasks)) as results:
        parts = [part for _, part in sorted(results, key=lambda result: result[0])]
    for part in parts:
        noted.update(part.noted)
    return [part for part in parts if part.rows]


def _no_rows() -> Generator[pa.RecordBatch]:
    yield from ()


def _part_path(folder: str, number: int, format_name: str) -> str:
    return os.path.join(folder, f"{PART}{number:05d}.{format_name}")


def _tasks(source: RowSource[Any], format_name: str, folder: str) -> list[Task[Any]]:
    def part(number: int) -> Part:
        path = _part_path(folder, number, format_name)
        return Part(path=path, format=format_name, projection=source.plan.projection)

    return list(source.tasks(part))


def _run(
    session: Session, source: RowSource[Any], engine: Engine, tasks: Sequence[Task[Any]]
) -> Generator[tuple[int, PartReport]]:
    """Yield each task's number and result when it finishes."""
    meter = Meter("reading", inputs=[task.input_bytes for task in tasks])
    results = engine.run(
        tasks,
        source.task,
        storage=source.plan.table.storage,
        meter=meter,
        shared=source.shared,
    )
    with closing(results), shown(session.progress, meter):  # type: ignore[type-var]
        for result in results:
            yield result.task, result.value


def write_part(
    part: Part,
    context: TaskContext,
    batches: Iterator[pa.RecordBatch],
    noted: Noted,
    expected_rows: int = 0,
) -> PartReport:
    """Write a task's rows to its file and flush it to the disk; without rows there is no file.

    Progress needs the number of expected rows; 0 if it is not known.
    """
    # Two attempts at one task must not write to one file; the last to finish renames its file to the final name.
    temporary = f"{part.path}.{context.attempt}"
    rows = size = 0
    try:
        with (
            open(temporary, "wb") as file,
            writing(part.format, file, part.projection) as sink,
        ):
            for batch in prefetch(batches):
                if context.stopped.is_set():
                    raise StoppedError(15)
                sink.write(batch)
                rows += batch.num_rows
                context.report(rows, rows / expected_rows if expected_rows else 0.0)
        if rows:
            size = os.path.getsize(temporary)
            flush(temporary)
            os.replace(temporary, part.path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return PartReport(path=part.path, rows=rows, size_bytes=size, noted=dict(noted))
