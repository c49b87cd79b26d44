"""Carry a scan out: rows to a file, a folder, a stream, or a preview."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from lake.core.engine import Task, TaskContext
from lake.core.engine.inline import InlineEngine
from lake.core.errors import InvalidRequestError, StoppedError
from lake.core.outcome import Outcome, Status
from lake.core.rows.reader import FileSlice, ReadSettings, read_ahead, read_batches
from lake.core.rows.schema import schema_from_plain, schema_to_plain
from lake.core.rows.sinks import ARROW, FORMATS, SUFFIXES, open_sink, plain_rows
from lake.core.scan.plan import ScanPlan
from lake.core.session import Session
from lake.core.table.storage import Storage

PREVIEW_ROWS = 20
_WRITE_PART = "lake.core.scan.execute:write_part"


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows go.

    Args:
        path: a local path; None with ``stream``.
        stream: an open binary stream.
        format: of the rows.
        single: one file rather than a folder of files.
        replace: an existing one may go.
    """

    format: str
    path: str | None = None
    stream: IO[bytes] | None = None
    single: bool = True
    replace: bool = False


def output_to(path: str, format_name: str | None, *, replace: bool) -> Output:
    """Decide what a path means: with a file suffix one file, else a folder.

    Raises:
        InvalidRequestError: the format is unknown or the path exists and may not go.
    """
    suffix = (
        os.path.basename(path).rsplit(".", 1)[-1].lower() if "." in os.path.basename(path) else ""
    )
    chosen = format_name or SUFFIXES.get(suffix, "parquet")
    if chosen not in FORMATS:
        raise InvalidRequestError(f"--output-format {chosen!r} is none of {', '.join(FORMATS)}")
    if os.path.lexists(path) and not replace:
        raise InvalidRequestError(f"{path} exists already", hint="--replace overwrites it")
    return Output(chosen, path, single=bool(suffix), replace=replace)


def describe(plan: ScanPlan) -> Outcome:
    """Tell the plan; no data is read."""
    return _outcome(plan, Status.DONE if plan.found.count else Status.NOTHING_TO_DO, {})


def preview(plan: ScanPlan) -> Outcome:
    """Read the first rows in this process."""
    wanted = PREVIEW_ROWS if plan.options.limit is None else min(plan.options.limit, PREVIEW_ROWS)
    rows: list[dict[str, Any]] = []
    for batch in _limited(_stream(plan), wanted):
        rows += plain_rows(batch, plan.projection)
    names = [field.name for field in plan.projection.fields]
    status = Status.DONE if plan.found.count else Status.NOTHING_TO_DO
    result = {"rows": len(rows), "bytes_written": 0, "files": 0, "preview": rows}
    table = [[row[name] for name in names] for row in rows]
    return _outcome(plan, status, result, details=[("rows", names, table)])


def write(session: Session, plan: ScanPlan, output: Output) -> Outcome:
    """Write all rows.

    Raises:
        CorruptFileError: a file cannot be read; nothing is left behind.
    """
    if output.stream is not None:
        rows = _write_stream(session, plan, output.format, output.stream)
        # The stream is the user's data: a summary would be in its way.
        return _outcome(plan, Status.DONE, {"rows": rows, "bytes_written": None, "files": 0})
    if output.path is None:
        raise InvalidRequestError("the output has neither a path nor a stream")
    if output.single:
        with _replacing(output) as temporary:
            with open(temporary, "wb") as file:
                rows = _write_stream(session, plan, output.format, file)
            size = os.path.getsize(temporary)
        return _outcome(plan, Status.DONE, {"rows": rows, "bytes_written": size, "files": 1})
    with _replacing(output) as temporary:
        os.makedirs(temporary)
        written = _write_parts(session, plan, output.format, temporary)
    result = {
        "rows": sum(item["rows"] for item in written),
        "bytes_written": sum(item["bytes"] for item in written),
        "files": sum(1 for item in written if item["rows"]),
    }
    return _outcome(plan, Status.DONE, result)


@contextmanager
def _replacing(output: Output) -> Iterator[str]:
    """Give a temporary name beside the output that takes its place at the end, or vanishes."""
    path = os.path.abspath(output.path or "")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.partial"
    try:
        yield temporary
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        _remove(temporary)


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write_stream(session: Session, plan: ScanPlan, format_name: str, stream: IO[bytes]) -> int:
    sink = open_sink(format_name, stream, plan.projection)
    rows = 0
    for batch in _limited(_all_rows(session, plan), plan.options.limit):
        sink.write(batch)
        rows += batch.num_rows
    sink.close()
    stream.flush()
    return rows


def _all_rows(session: Session, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield all rows in the order of the splits."""
    if plan.options.limit is not None:
        yield from _stream(plan)
        return
    engine = session.engine(plan.bytes)
    if isinstance(engine, InlineEngine):
        session.progress.start("reading", tasks=1, total_bytes=plan.bytes)
        for batch in _stream(plan):
            session.progress.advance(rows=batch.num_rows)
            yield batch
        session.progress.finish()
        return
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="lake-scan-") as folder:
        _write_parts(session, plan, ARROW, folder)
        for name in sorted(os.listdir(folder)):
            with pa.OSFile(os.path.join(folder, name)) as file:
                yield from pa.ipc.open_stream(file)


def _stream(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    slices = [item for split in plan.slices() for item in split]
    return read_ahead(_read(plan.table.storage, slices, plan.reading()))


def _read(
    storage: Storage, slices: Sequence[FileSlice], reading: ReadSettings
) -> Iterator[pa.RecordBatch]:
    for item in slices:
        yield from read_batches(storage, item, reading)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    try:
        for batch in batches:
            if left is None:
                yield batch
                continue
            if left <= 0:
                return
            taken = batch.slice(0, left)
            left -= taken.num_rows
            yield taken
            if left <= 0:
                return
    finally:
        batches.close()  # type: ignore[attr-defined]


def _write_parts(
    session: Session, plan: ScanPlan, format_name: str, folder: str
) -> list[Mapping[str, Any]]:
    """Write each split to a file of its own, on the engine; files of no rows are not kept."""
    splits = plan.slices()
    if plan.options.limit is not None:
        path = os.path.join(folder, f"part-00000.{format_name}")
        with open(path, "wb") as file:
            rows = _write_stream(session, plan, format_name, file)
        return [{"rows": rows, "bytes": os.path.getsize(path)}]
    common = {
        "reading": plan.reading().to_plain(),
        "projection": schema_to_plain(plan.projection),
        "format": format_name,
    }
    tasks = [
        Task(
            {
                **common,
                "files": [item.to_plain() for item in split],
                "path": os.path.join(folder, f"part-{number:05d}.{format_name}"),
            },
            sum(item.length or item.size_bytes for item in split),
        )
        for number, split in enumerate(splits)
    ]
    session.progress.start("reading", tasks=len(tasks), total_bytes=plan.bytes)
    written = []
    for result in session.engine(plan.bytes).run(tasks, _WRITE_PART, storage=plan.table.storage):
        written.append(result.value)
        session.progress.advance(
            tasks=1, done_bytes=tasks[result.task].input_bytes, rows=result.value["rows"]
        )
    session.progress.finish()
    return written


def write_part(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Task: write a split's rows to one file."""
    reading = ReadSettings.from_plain(payload["reading"])
    projection = schema_from_plain(payload["projection"])
    slices = [FileSlice.from_plain(item) for item in payload["files"]]
    # Two attempts at one task must not write into one file; the last to finish gives it its name.
    temporary = f"{payload['path']}.{context.attempt}"
    rows = 0
    try:
        with open(temporary, "wb") as file:
            sink = open_sink(payload["format"], file, projection)
            for batch in read_ahead(_read(context.storage, slices, reading)):
                if context.stopped.is_set():
                    raise StoppedError(15)
                sink.write(batch)
                rows += batch.num_rows
            sink.close()
        if rows:
            os.replace(temporary, payload["path"])
    finally:
        _remove(temporary)
    yield {"rows": rows, "bytes": os.path.getsize(payload["path"]) if rows else 0}


def _outcome(
    plan: ScanPlan,
    status: Status,
    result: Mapping[str, Any],
    details: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = (),
) -> Outcome:
    warnings = []
    if plan.skipped:
        shown = ", ".join(
            f"{item.snapshot_id} ({item.summary.operation.value if item.summary else '?'})"
            for item in plan.skipped[:20]
        )
        warnings.append(
            f"an append scan does not show what {len(plan.skipped)} snapshots changed: {shown}"
        )
    if plan.truncated:
        warnings.append("older snapshots have expired: what they appended is not in this scan")
    return Outcome(
        command="scan",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=status,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
        warnings=warnings,
        details=details,
    )
