"""Carry a scan out: rows to a file, a folder, a stream, or a preview."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake.core.deletes.apply import Deletes, EqualityGroups, read_rows
from lake.core.engine import Engine, Task, TaskContext
from lake.core.engine.choose import engine_name
from lake.core.engine.inline import InlineEngine
from lake.core.engine.spark_conf import SparkConf
from lake.core.errors import CorruptFileError, LakeError, StoppedError
from lake.core.outcome import Outcome, Status
from lake.core.rows.reader import FileSlice, ReadSettings, read_ahead, read_batches
from lake.core.rows.schema import schema_from_plain, schema_to_plain
from lake.core.rows.sinks import ARROW_STREAM, plain_rows, writing
from lake.core.scan.incremental import operation_of
from lake.core.scan.output import PART, Output, opened, refuse_inside, replacing
from lake.core.scan.plan import ScanPlan
from lake.core.session import Session

PREVIEW_ROWS = 20
_SHOWN_SNAPSHOTS = 20
_WRITE_PART = "lake.core.scan.execute:write_part"


def describe(plan: ScanPlan) -> Outcome:
    """Tell the plan; no data is read."""
    return _outcome(plan, {})


def preview(plan: ScanPlan) -> Outcome:
    """Read the first rows in this process."""
    wanted = PREVIEW_ROWS if plan.options.limit is None else min(plan.options.limit, PREVIEW_ROWS)
    rows: list[dict[str, Any]] = []
    for batch in _limited(_stream(plan, _Dropped()), wanted):
        rows += plain_rows(batch, plan.projection)
    names = [field.name for field in plan.projection.fields]
    result = {"rows": len(rows), "bytes_written": 0, "files": 0, "preview": rows}
    table = [[row[name] for name in names] for row in rows]
    return _outcome(plan, result, details=[("rows", names, table)])


def write(session: Session, plan: ScanPlan, output: Output) -> Outcome:
    """Write all rows.

    Raises:
        RefusedError: the output lies in the table, or a file's format cannot be read yet.
        CorruptFileError: a file cannot be read; nothing is left behind.
        BadInputError: the output cannot be written.
    """
    refuse_inside(output, plan.table)
    if output.single:
        with opened(output) as sink:
            dropped = _Dropped()
            batches = _all_rows(session, plan, output, dropped)
            rows = _write_rows(plan, batches, output.format, sink)
            _check_rows(plan, rows + dropped.rows)
        kept = output.stream is None and not output.is_device
        written = os.path.getsize(output.path) if kept else None
        return _outcome(plan, {"rows": rows, "bytes_written": written, "files": int(kept)})
    with replacing(output) as temporary:
        os.makedirs(temporary)
        parts = _write_folder(session, plan, output, temporary)
    result = {
        "rows": sum(part["rows"] for part in parts),
        "bytes_written": sum(part["bytes"] for part in parts),
        "files": len(parts),
    }
    return _outcome(plan, result)


# One stream of rows


def _write_rows(
    plan: ScanPlan, batches: Iterator[pa.RecordBatch], format_name: str, stream: Any
) -> int:
    rows = 0
    with writing(format_name, stream, plan.projection) as sink:
        for batch in _limited(batches, plan.options.limit):
            sink.write(batch)
            rows += batch.num_rows
    return rows


@dataclass(slots=True)
class _Dropped:
    """How many rows deletes left out."""

    rows: int = 0


def _check_rows(plan: ScanPlan, rows: int) -> None:
    """Compare what was read, deleted or not, with what the table's metadata says, where all was to be read."""
    whole = plan.condition is None and plan.options.limit is None
    if whole and rows != plan.records:
        raise CorruptFileError(f"the files gave {rows} rows of the {plan.records} that they hold")


def _all_rows(
    session: Session, plan: ScanPlan, output: Output, dropped: _Dropped
) -> Iterator[pa.RecordBatch]:
    """Yield all rows in the order of the splits."""
    engine = None if plan.options.limit is not None else _engine(session, plan)
    if engine is None or isinstance(engine, InlineEngine):
        yield from _progressing(session, plan, _stream(plan, dropped))
        return
    beside = os.path.dirname(os.path.abspath(output.path)) if output.path else None
    with tempfile.TemporaryDirectory(prefix=".lake-scan-", dir=beside) as folder:
        tasks = _tasks(plan, ARROW_STREAM, folder)
        with closing(_run(session, plan, engine, tasks)) as results:
            for part in _in_order(results):
                dropped.rows += part["dropped"]
                if part["rows"]:
                    with pa.OSFile(part["path"]) as file:
                        yield from pa.ipc.open_stream(file)
                    os.unlink(part["path"])


def _engine(session: Session, plan: ScanPlan) -> Engine:
    """Return what reads: Spark only where its tasks can write files of this machine."""
    settings = session.settings
    if engine_name(settings.engine, plan.bytes, settings) != InlineEngine.name:
        local = SparkConf.of(settings.master, settings.spark_conf).is_local
        if settings.remote or not local:
            session.warn("the output lies on this machine, so this process reads, not the cluster")
            return InlineEngine()
    return session.engine(plan.bytes)


def _progressing(
    session: Session, plan: ScanPlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    per_row = plan.bytes / max(plan.records, 1)
    session.progress.start("reading", tasks=1, total_bytes=plan.bytes)
    with closing(batches):  # type: ignore[type-var]
        for batch in batches:
            session.progress.advance(rows=batch.num_rows, done_bytes=int(per_row * batch.num_rows))
            yield batch
    session.progress.finish()


def _in_order(results: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Mapping[str, Any]]:
    """Yield parts by their number, each as soon as all before it are there."""
    early: dict[int, Mapping[str, Any]] = {}
    turn = 0
    for number, part in results:
        early[number] = part
        while turn in early:
            yield early.pop(turn)
            turn += 1


def _stream(plan: ScanPlan, dropped: _Dropped) -> Iterator[pa.RecordBatch]:
    return read_ahead(_read(plan, dropped))


def _read(plan: ScanPlan, dropped: _Dropped) -> Iterator[pa.RecordBatch]:
    storage, every = plan.table.storage, plan.found.equality_deletes()
    # Most splits have the same equality deletes.
    with closing(EqualityGroups(storage, every, plan.reading(every))) as groups:
        for split in plan.reads():
            reading = plan.reading(split.deletes)
            deletes = Deletes(storage, reading, split.slices, groups)
            for item in split.slices:
                yield from read_batches(storage, item, reading, deletes)
            dropped.rows += deletes.dropped


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    with closing(batches):  # type: ignore[type-var]
        for batch in batches if limit != 0 else ():
            taken = batch if left is None else batch.slice(0, left)
            yield taken
            left = None if left is None else left - taken.num_rows
            if left == 0:
                return


# A folder of files, one a split


def _write_folder(
    session: Session, plan: ScanPlan, output: Output, folder: str
) -> list[Mapping[str, Any]]:
    """Write the splits on the engine; files without rows are not kept, but one is if there are no others."""
    filled: list[Mapping[str, Any]] = []
    if plan.options.limit is None:
        tasks = _tasks(plan, output.format, folder)
        with closing(_run(session, plan, _engine(session, plan), tasks)) as results:
            parts = [part for _, part in results]
        _check_rows(plan, sum(part["rows"] + part["dropped"] for part in parts))
        filled = [part for part in parts if part["rows"]]
    if filled:
        return filled
    path = _part_path(folder, 0, output.format)
    batches = _stream(plan, _Dropped()) if plan.options.limit is not None else _no_rows()
    with open(path, "wb") as file:
        rows = _write_rows(plan, batches, output.format, file)
    return [{"rows": rows, "bytes": os.path.getsize(path)}]


def _no_rows() -> Iterator[pa.RecordBatch]:
    yield from ()


def _part_path(folder: str, number: int, format_name: str) -> str:
    return os.path.join(folder, f"{PART}{number:05d}.{format_name}")


def _tasks(plan: ScanPlan, format_name: str, folder: str) -> list[Task]:
    common = {
        "projection": schema_to_plain(plan.projection),
        "format": format_name,
    }
    return [
        Task(
            {
                **common,
                "reading": plan.reading(split.deletes).to_plain(),
                "files": [item.to_plain() for item in split.slices],
                "path": _part_path(folder, number, format_name),
            },
            sum(item.length or item.size_bytes - item.start for item in split.slices),
        )
        for number, split in enumerate(plan.reads())
    ]


def _run(
    session: Session, plan: ScanPlan, engine: Engine, tasks: Sequence[Task]
) -> Generator[tuple[int, Mapping[str, Any]]]:
    """Yield each task's number and what it wrote, as they finish."""
    session.progress.start("reading", tasks=len(tasks), total_bytes=plan.bytes)
    ended = 0
    results = engine.run(tasks, _WRITE_PART, storage=plan.table.storage)
    with closing(results):  # type: ignore[type-var]
        for result in results:
            ended += 1
            session.progress.advance(
                tasks=1, done_bytes=tasks[result.task].input_bytes, rows=result.value["rows"]
            )
            yield result.task, result.value
    session.progress.finish()
    if ended != len(tasks):
        raise LakeError(f"the engine lost {len(tasks) - ended} tasks: nothing was written")


def write_part(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Task: write a split's rows to one file; none is there for no rows."""
    reading = ReadSettings.from_plain(payload["reading"])
    projection = schema_from_plain(payload["projection"])
    slices = [FileSlice.from_plain(item) for item in payload["files"]]
    # Two attempts at one task must not write into one file; the last to finish gives it its name.
    temporary = f"{payload['path']}.{context.attempt}"
    rows = size = 0
    try:
        with (
            open(temporary, "wb") as file,
            writing(payload["format"], file, projection) as sink,
            closing(Deletes(context.storage, reading, slices)) as deletes,
        ):
            for batch in read_ahead(read_rows(context.storage, slices, reading, deletes)):
                if context.stopped.is_set():
                    raise StoppedError(15)
                sink.write(batch)
                rows += batch.num_rows
        if rows:
            size = os.path.getsize(temporary)
            os.replace(temporary, payload["path"])
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    yield {"path": payload["path"], "rows": rows, "dropped": deletes.dropped, "bytes": size}


def _outcome(
    plan: ScanPlan,
    result: Mapping[str, Any],
    details: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = (),
) -> Outcome:
    warnings = []
    if plan.skipped:
        shown = ", ".join(
            f"{item.snapshot_id} ({operation_of(item)})" for item in plan.skipped[:_SHOWN_SNAPSHOTS]
        )
        more = len(plan.skipped) - _SHOWN_SNAPSHOTS
        warnings.append(
            f"an append scan does not show what {len(plan.skipped)} snapshots changed: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )
    if plan.truncated:
        warnings.append("older snapshots have expired: what they appended is not in this scan")
    return Outcome(
        command="scan",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=Status.DONE if plan.found.count else Status.NOTHING_TO_DO,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
        warnings=warnings,
        details=details,
    )
