"""Carry an ingest out: rows to files on the engine, files to one snapshot, nothing left on failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.engine import Engine, Task, TaskContext, TaskResult
from lake.core.errors import BadInputError, CorruptFileError, LakeError, StoppedError
from lake.core.expressions import bind_filter, filter_from_plain, filter_to_plain, row_mask
from lake.core.ingest.plan import (
    APPEND,
    HASH,
    REPLACE,
    IngestPlan,
    tasks_for,
)
from lake.core.outcome import Outcome, Status
from lake.core.rows.convert import convert
from lake.core.rows.partitioning import group_rows, partition_number
from lake.core.rows.reader import FileSlice, ReadSettings, read_ahead, read_batches
from lake.core.rows.schema import arrow_field, arrow_schema, arrow_type
from lake.core.rows.sources import CSV, JSON, Source, read_source
from lake.core.rows.texts import parses, text_to
from lake.core.rows.writer import WriteSettings, open_writer
from lake.core.session import Session
from lake.core.table.commit import Committed, commit_snapshot, find_summary
from lake.core.table.files import DataFile
from lake.core.table.operations import AppendFiles, Operation, OverwriteFiles, ReplacePartitions
from lake.core.table.run_ids import CARRIED_MS, RUN_ID, expired_run_ids
from lake.core.table.staging import staged

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

_BLOB_BYTES = 4 * 1024 * 1024
_TASK = "lake.core.ingest.execute"


@dataclass(slots=True)
class _Written:
    files: list[DataFile] = field(default_factory=list)
    rows_read: int = 0

    def take(self, value: Mapping[str, Any]) -> None:
        self.files += [DataFile.from_plain(file) for file in value["files"]]
        self.rows_read += value["rows_read"]

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)


def already_ran(metadata: TableMetadata, run_id: str | None, now_ms: int) -> bool:
    """Whether a run of this id has landed: a snapshot carries it, or did in the last 30 days."""
    if run_id is None:
        return False
    if find_summary(metadata, {RUN_ID: run_id}) is not None:
        return True
    expired = expired_run_ids(metadata).get(run_id)
    return expired is not None and expired > now_ms - CARRIED_MS


def preview(plan: IngestPlan) -> Outcome:
    """Describe a plan without carrying it out."""
    columns = [[item["name"], item["type"], item["required"]] for item in plan.facts()["columns"]]
    return Outcome(
        command="ingest",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=Status.DRY_RUN,
        base_snapshot_id=plan.base_snapshot_id,
        plan=plan.facts(),
        details=[("columns", ["column", "type", "required"], columns)],
    )


def execute(session: Session, plan: IngestPlan) -> Outcome:
    """Write the rows and commit them as one snapshot.

    Raises:
        BadInputError: a row does not fit; nothing is left behind.
        CommitConflictError: others changed what an overwrite replaces; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every file stays.
    """
    run_id = plan.options.run_id
    if already_ran(plan.table.metadata, run_id, session.clock.now_ms()):
        return _outcome(plan, Status.NOTHING_TO_DO, _Written())
    operation_id = session.ids.uuid()
    if plan.table.creating:
        session.catalog.make_namespace(plan.table.identifier)
    with staged(session, plan.table, operation_id):
        source = _write_source(session, plan, operation_id)
        if not source.files:
            if plan.options.mode != APPEND:
                session.warn("the source has no rows: nothing was replaced")
            return _outcome(plan, Status.NOTHING_TO_DO, source)
        kept = _write_kept(session, plan, operation_id)
        committed = _commit(session, plan, operation_id, [*source.files, *kept])
    status = Status.NOTHING_TO_DO if committed.already else Status.DONE
    return _outcome(plan, status, _Written() if committed.already else source, operation_id, committed)


def _write_source(session: Session, plan: IngestPlan, operation_id: str) -> _Written:
    engine = session.engine(plan.input_bytes)
    common: dict[str, Any] = {
        "write": plan.settings(operation_id).to_plain(),
        "must_match": None if plan.condition is None else filter_to_plain(plan.condition),
    }
    groups = tasks_for(plan, engine.parallelism)
    if plan.distribution == HASH and engine.name == "inline":
        # One writer sees all rows: each partition gets one file without moving a byte.
        groups = [[unit for group in groups for unit in group]] if groups else []
    tasks = [
        Task(
            {**common, "task": number, "units": [payload for payload, _ in group]},
            sum(size for _, size in group),
        )
        for number, group in enumerate(groups)
    ]
    session.progress.start("writing", tasks=len(tasks), total_bytes=plan.input_bytes)
    written = _Written()
    for result in _run(engine, plan, tasks, common):
        written.take(result.value)
        done = tasks[result.task].input_bytes if result.value["whole_task"] else 0
        session.progress.advance(tasks=1, done_bytes=done, rows=result.value["rows_read"])
    session.progress.finish()
    if written.rows != written.rows_read:
        raise LakeError(f"read {written.rows_read} rows but wrote {written.rows}: nothing was committed")
    return written


def _run(
    engine: Engine, plan: IngestPlan, tasks: list[Task], common: Mapping[str, Any]
) -> Iterator[TaskResult]:
    if plan.distribution != HASH or len(tasks) < 2:  # noqa: PLR2004 - one writer needs no exchange
        yield from engine.run(tasks, f"{_TASK}:write_rows", storage=plan.table.storage)
        return
    reducers = [
        {"write": common["write"], "task": number} for number in range(_reducers(plan, engine))
    ]
    mapped = [
        Task({**task.payload, "reducers": len(reducers)}, task.input_bytes) for task in tasks
    ]
    yield from engine.exchange(
        mapped,
        f"{_TASK}:send_rows",
        f"{_TASK}:receive_rows",
        reducers,
        storage=plan.table.storage,
    )


def _reducers(plan: IngestPlan, engine: Engine) -> int:
    return max(engine.parallelism, min(200, -(-plan.input_bytes // (256 * 1024 * 1024))))


def _write_kept(session: Session, plan: IngestPlan, operation_id: str) -> list[DataFile]:
    """Write again the rows that stay of files which an overwrite hits only in part."""
    if not plan.rewritten or plan.condition is None:
        return []
    metadata = plan.table.metadata
    reading = ReadSettings(
        projection=plan.schema,
        schema=plan.schema,
        specs=metadata.specs(),
        name_mapping=plan.table.properties.get("schema.name-mapping.default"),
    ).to_plain()
    total = sum(file.size_bytes for file in plan.rewritten)
    engine = session.engine(total)
    tasks = [
        Task(
            {
                "write": plan.settings(operation_id).to_plain(),
                "reading": reading,
                "file": file.to_plain(),
                "remove": filter_to_plain(plan.condition),
                # Numbers behind the source's tasks, so that names differ.
                "task": 50_000 + number,
            },
            file.size_bytes,
        )
        for number, file in enumerate(plan.rewritten)
    ]
    kept = _Written()
    session.progress.start("rewriting", tasks=len(tasks), total_bytes=total)
    for result in engine.run(tasks, f"{_TASK}:write_kept", storage=plan.table.storage):
        kept.take(result.value)
        session.progress.advance(tasks=1, done_bytes=tasks[result.task].input_bytes)
    session.progress.finish()
    return kept.files


def _commit(
    session: Session, plan: IngestPlan, operation_id: str, files: list[DataFile]
) -> Committed:
    run_id = plan.options.run_id
    marks = {RUN_ID: run_id} if run_id else {}
    if plan.options.mode == REPLACE:
        marks = {**marks, "replace-partitions": "true"}
    requirements, updates = _evolution(plan)
    return commit_snapshot(
        session,
        plan.table,
        _operation(plan, files),
        operation_id=operation_id,
        branch=plan.options.branch,
        summary=marks,
        guard={RUN_ID: run_id} if run_id else None,
        requirements=requirements,
        updates=updates,
    )


def _operation(plan: IngestPlan, files: list[DataFile]) -> Operation:
    mode, base = plan.options.mode, plan.base_snapshot_id
    isolation = plan.table.properties.get("write.delete.isolation-level", "serializable").lower()
    if mode == APPEND or (plan.table.creating and mode != REPLACE):
        return AppendFiles(added=files)
    if mode == REPLACE:
        return ReplacePartitions(added=files, base_snapshot_id=base, isolation=isolation)
    removed = [*plan.removed, *(file.path for file in plan.rewritten)]
    return OverwriteFiles(
        added=files,
        removed_paths=removed,
        base_snapshot_id=base,
        conflict_filter=plan.condition,
        isolation=isolation,
    )


def _evolution(
    plan: IngestPlan,
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return what adds the new columns in the same commit, on the very schema that was seen."""
    if not plan.evolves:
        return (), ()
    from pyiceberg.table.update import (  # noqa: PLC0415
        AddSchemaUpdate,
        AssertCurrentSchemaId,
        AssertLastAssignedFieldId,
        SetCurrentSchemaUpdate,
    )

    metadata = plan.table.metadata
    return (
        (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        ),
        (
            AddSchemaUpdate(schema_=plan.schema),
            SetCurrentSchemaUpdate(schema_id=plan.schema.schema_id),
        ),
    )


def _outcome(
    plan: IngestPlan,
    status: Status,
    written: _Written,
    operation_id: str | None = None,
    committed: Committed | None = None,
) -> Outcome:
    return Outcome(
        command="ingest",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=status,
        operation_id=operation_id if committed else None,
        base_snapshot_id=plan.base_snapshot_id,
        snapshot_ids=[committed.snapshot_id] if committed else [],
        plan=plan.facts(),
        result={
            "rows_read": written.rows_read,
            "rows_written": written.rows,
            "rows_inserted": written.rows,
            "rows_updated": 0,
            "rows_rejected": 0,
            "data_files": len(written.files),
            "delete_files": 0,
            "bytes_written": sum(file.size_bytes for file in written.files),
        },
    )


# Task functions


def write_rows(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Read a task's units and write their rows."""
    settings = WriteSettings.from_plain(payload["write"])
    with open_writer(
        context.storage, settings, task=payload["task"], attempt=context.attempt
    ) as writer:
        for batch in read_ahead(_rows(payload, settings.schema, context)):
            _go_on(context)
            writer.write(batch)
        files = writer.close()
    yield _report(files, writer.rows, whole_task=True)


def send_rows(payload: Mapping[str, Any], context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Read a task's units and send each partition's rows to its reducer, as Arrow IPC streams.

    Bytes carry every type without loss, and rows never become rows of a JVM.
    """
    settings = WriteSettings.from_plain(payload["write"])
    waiting: dict[int, list[pa.RecordBatch]] = {}
    sizes: dict[int, int] = {}
    for batch in _rows(payload, settings.schema, context):
        _go_on(context)
        for partition, part in group_rows(batch, settings.spec, settings.schema):
            number = partition_number(partition, payload["reducers"])
            waiting.setdefault(number, []).append(part)
            sizes[number] = sizes.get(number, 0) + part.nbytes
            if sizes[number] >= _BLOB_BYTES:
                sizes.pop(number)
                yield number, _to_bytes(waiting.pop(number))
    for number, parts in waiting.items():
        yield number, _to_bytes(parts)


def receive_rows(
    payload: Mapping[str, Any], blobs: Iterable[bytes], context: TaskContext
) -> Iterator[Mapping[str, Any]]:
    """Write the rows that were sent to one reducer."""
    settings = WriteSettings.from_plain(payload["write"])
    with open_writer(
        context.storage, settings, task=payload["task"], attempt=context.attempt
    ) as writer:
        for blob in blobs:
            _go_on(context)
            for batch in pa.ipc.open_stream(blob):
                writer.write(batch)
        files = writer.close()
    yield _report(files, writer.rows, whole_task=False)


def write_kept(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Write those rows of a file for which a filter is not true."""
    settings = WriteSettings.from_plain(payload["write"])
    reading = ReadSettings.from_plain(payload["reading"])
    condition = bind_filter(filter_from_plain(payload["remove"]), settings.schema)
    file = FileSlice.from_plain(payload["file"])
    with open_writer(
        context.storage, settings, task=payload["task"], attempt=context.attempt
    ) as writer:
        for batch in read_ahead(read_batches(context.storage, file, reading)):
            _go_on(context)
            writer.write(batch.filter(pc.invert(row_mask(condition, batch, settings.schema))))
        files = writer.close()
    yield _report(files, writer.rows, whole_task=True)


def _report(files: list[DataFile], rows: int, *, whole_task: bool) -> dict[str, Any]:
    return {
        "files": [file.to_plain() for file in files],
        "rows_read": rows,
        "whole_task": whole_task,
    }


def _go_on(context: TaskContext) -> None:
    if context.stopped.is_set():
        raise StoppedError(15)


def _to_bytes(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def _rows(
    payload: Mapping[str, Any], schema: Schema, context: TaskContext
) -> Iterator[pa.RecordBatch]:
    """Yield a task's rows as the table's, checked."""
    plain = payload["must_match"]
    condition = None if plain is None else bind_filter(filter_from_plain(plain), schema)
    for unit in payload["units"]:
        for batch, where in _unit_rows(unit, schema, context):
            _check_required(batch, where)
            if condition is not None:
                _check_matching(batch, condition, schema, where)
            yield batch


def _unit_rows(
    unit: Mapping[str, Any], schema: Schema, context: TaskContext
) -> Iterator[tuple[pa.RecordBatch, str]]:
    target = arrow_schema(schema)
    if "source" in unit:
        source = Source.from_plain(unit["source"])
        text = source.format in {CSV, JSON}
        for batch in read_source(context.storage, source, target):
            yield _as_table(batch, schema, source.path, text=text), source.path
        return
    file = FileSlice.from_plain(unit["file"])
    reading = ReadSettings.from_plain(unit["reading"])
    for batch in read_batches(context.storage, file, reading):
        yield _as_table(batch, schema, file.path, text=False), file.path


def _as_table(batch: pa.RecordBatch, schema: Schema, where: str, *, text: bool) -> pa.RecordBatch:
    """Return a source's batch with the table's columns; those that it lacks are NULL."""
    columns = []
    unknown = set(batch.schema.names) - {item.name for item in schema.fields}
    if unknown:
        raise BadInputError(f"{where} has columns that the table lacks: {', '.join(sorted(unknown))}")
    for item in schema.fields:
        index = batch.schema.get_field_index(item.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, arrow_type(item.field_type)))
            continue
        column = batch.column(index)
        if text and parses(item.field_type) and pa.types.is_string(column.type):
            columns.append(text_to(column, item.field_type, item.name, where))
        else:
            columns.append(_convert(column, item, where))
    fields = pa.schema([arrow_field(item) for item in schema.fields])
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _convert(column: pa.Array, item: Any, where: str) -> pa.Array:
    try:
        return convert(column, item, where, by_name=True)
    except CorruptFileError as error:
        raise BadInputError(error.message, hint=error.hint) from error


def _check_required(batch: pa.RecordBatch, where: str) -> None:
    for item, column in zip(batch.schema, batch.columns, strict=True):
        if not item.nullable and column.null_count:
            raise BadInputError(f"{where} has NULL in the required column {item.name}")


def _check_matching(
    batch: pa.RecordBatch, condition: BooleanExpression, schema: Schema, where: str
) -> None:
    mask = row_mask(condition, batch, schema)
    if not pc.all(mask).as_py():
        row = batch.filter(pc.invert(mask)).slice(0, 1).to_pylist()[0]
        raise BadInputError(
            f"{where} has rows that do not match the overwrite's filter, e.g. {str(row)[:200]}",
            hint="an overwrite may only add rows of the part that it replaces",
        )

