"""The source's side of an upsert on the engine: write rows to data files, and their keys to temporary files.

The keys are written in the order of the rows, one file per unit of the source, so a row is identified by its unit
and its position in the unit. If several rows have the same key, the source is read again without the rows that are
replaced by a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lake.core.base import locations
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.base.plain import PlainData
from lake.core.data.columns.defaults import without_write_defaults
from lake.core.data.keys.extraction import columns_of, cut, unusable
from lake.core.data.rows.reader import prefetch
from lake.core.data.rows.sorted_writer import open_ordered_writer
from lake.core.data.sources.acceptance import RowCheck, RowProblem
from lake.core.engine.shuffle import ShuffleBuffer, encode_report
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.checksummed_batches import batch_file, batches_in
from lake.core.load.ingest.payloads import ReceiveTask, SourceTask, SourceUnit, WriteReport
from lake.core.load.ingest.rejects import RejectReport, UnitRejects
from lake.core.load.ingest.tasks import task_units, write_sent
from lake.core.load.upsert.change_rows import ChangeRows
from lake.core.load.upsert.dedup_tasks import DELETED
from lake.core.load.upsert.merge_tasks import column_name
from lake.core.spec.types.transforms import group_rows, partition_number


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings(PlainData):
    """The settings for the keys of rows.

    Args:
        ids: columns of the key.
        order: columns that decide which of several rows with one key is written.
        sequence: the first of them, if the table's rows are compared by it too.
        columns: top-level columns that are written beside the key, for rows that are merged.
        kinds: for a change log, the column with the row kind; else None.
        ignore_deletes: whether its rows of kind -D are left out.
        losers: files of rows to skip; None to write the keys.
        folder: the folder for files of keys.
        name: the prefix of their names.
    """

    ids: Sequence[int]
    order: Sequence[int]
    sequence: int | None = None
    columns: Sequence[int] = ()
    kinds: str | None = None
    ignore_deletes: bool = False
    losers: Sequence[str] | None
    folder: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedSourceTask(SourceTask):
    """Read units, and write the keys of their rows."""

    keys: KeySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReport(PlainData):
    """The rows of one unit of the source, and the files that were written beside the data files.

    Args:
        place: the unit's index among all units of the source.
        rows_read: the number of its rows.
        rows: the number of rows with a usable key.
        keys: the file of their keys; None if there is none.
        key_bytes: the size of the keys in memory.
        rejects: the rows that are set aside.
        skipped: the number of changes without an effect.
        ignored: the number of those among them that are deletes.
    """

    place: int
    rows_read: int = 0
    rows: int = 0
    keys: str | None = None
    key_bytes: int = 0
    rejects: RejectReport = field(default_factory=RejectReport)
    skipped: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWriteReport(WriteReport):
    """A `WriteReport`, with the units that were read completely since the last one."""

    units: Sequence[UnitReport] = ()


def write_rows(task: KeyedSourceTask, context: TaskContext) -> Iterator[KeyedWriteReport]:
    """Read a task's units and write their rows; reports each unit's keys, then the files."""
    settings = task.write
    with open_ordered_writer(context, settings, task=task.task) as writer:
        for unit, batches, rejects in _units(task, context):
            with _UnitRows(task, unit, context) as rows:
                for batch in prefetch(batches):
                    context.check_cancelled()
                    writer.write(rows.kept(batch))
            report = rows.report(rejects)
            yield KeyedWriteReport(rows_read=report.rows_read, units=[report])
        files = writer.close()
    yield KeyedWriteReport(files=files)


def collect_rows(task: KeyedSourceTask, context: TaskContext) -> Iterator[KeyedWriteReport]:
    """Read a task's units and write their keys, with columns beside them, and no data files."""
    for unit, batches, rejects in _units(task, context):
        with _UnitRows(task, unit, context) as rows:
            for batch in prefetch(batches):
                context.check_cancelled()
                rows.kept(batch)
        report = rows.report(rejects)
        yield KeyedWriteReport(rows_read=report.rows_read, units=[report])


def send_rows(task: KeyedSourceTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Read a task's units and send each partition's rows to its reducer; the units' reports go to reducer 0."""
    settings = task.write
    outbox = ShuffleBuffer()
    reports = []
    for unit, batches, rejects in _units(task, context):
        with _UnitRows(task, unit, context) as rows:
            for batch in prefetch(batches):
                context.check_cancelled()
                parts = group_rows(rows.kept(batch), settings.spec, settings.schema)
                for partition, part in parts:
                    yield from outbox.add(partition_number(partition, task.reducers), part)
        reports.append(rows.report(rejects))
    yield from outbox.drain()
    for report in reports:
        yield 0, encode_report(report)


def receive_rows(
    task: ReceiveTask, blobs: Iterable[bytes], context: TaskContext
) -> Iterator[KeyedWriteReport]:
    """Write the rows that were sent to one reducer; reports the files, and the units that the senders read."""
    files, units = write_sent(task, blobs, context, UnitReport)
    rows_read = sum(unit.rows_read for unit in units)
    yield KeyedWriteReport(files=files, rows_read=rows_read, units=units)


def _read_schema(task: KeyedSourceTask) -> Schema:
    """Return the schema for reading; a missing key makes a row unusable, and is not replaced by a default value."""
    keys = task.keys
    if (changes := _changes(task)) is not None:
        return changes.schema
    sequence = [] if keys.sequence is None else [keys.sequence]
    return without_write_defaults(task.write.schema, [*keys.ids, *sequence])


def _changes(task: KeyedSourceTask) -> ChangeRows | None:
    keys = task.keys
    if keys.kinds is None:
        return None
    return ChangeRows(
        task.write.schema,
        keys.kinds,
        list(keys.ids),
        by_key=True,
        ignore_deletes=keys.ignore_deletes,
        also=() if keys.sequence is None else (keys.sequence,),
    )


def _units(
    task: KeyedSourceTask, context: TaskContext
) -> Iterator[tuple[SourceUnit, Iterator[pa.RecordBatch], UnitRejects]]:
    """Yield each unit of a task with its rows that have a usable key."""
    # When the source is read again, rejected rows are already written.
    read = task if task.keys.losers is None else task.counting()
    schema, ids = task.write.schema, task.keys.ids
    names = [schema.find_column_name(column) or "" for column in ids]
    key = columns_of(schema, ids)
    check = key_check(names, lambda batch: cut(batch, key).columns)
    checks = [check]
    if task.keys.sequence is not None:
        checks.append(sequence_check(schema.find_column_name(task.keys.sequence) or ""))
    return task_units(read, _read_schema(task), context, checks)


def sequence_check(name: str) -> RowCheck:
    """Return the check that a row's sequence is not NaN, which has no place in an order."""

    def check(batch: pa.RecordBatch, where: str) -> RowProblem | None:
        column = batch.column(name)
        if not pa.types.is_floating(column.type):
            return None
        mask = pc.fill_null(pc.is_nan(column), False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        if not mask.any():
            return None
        reason = f"NaN in the sequence column {name}"
        error = BadInputError(
            f"{where} has {reason}", hint=f"add {Option.REJECTS} PATH to write such rows to a file"
        )
        return RowProblem(mask, reason, error)

    return check


def key_check(
    names: Sequence[str],
    columns: Callable[[pa.RecordBatch], Sequence[pa.Array]],
    shown: Callable[[pa.RecordBatch, int], str] = lambda *_: "",
) -> RowCheck:
    """Return the check that the key of each row can be used: it contains neither NULL nor NaN.

    Args:
        names: the names of the key's columns.
        columns: returns these columns of a batch.
        shown: returns the row at a position, for the end of the message.
    """

    def check(batch: pa.RecordBatch, where: str) -> RowProblem | None:
        for name, column in zip(names, columns(batch), strict=True):
            if (problem := unusable(column)) is not None:
                mask, what = problem
                reason = f"{what} in the key column {name}"
                error = BadInputError(
                    f"{where} has {reason}{shown(batch, int(np.argmax(mask)))}",
                    hint=f"add {Option.REJECTS} PATH to write such rows to a file",
                )
                return RowProblem(mask, reason, error)
        return None

    return check


class _UnitRows:
    """The rows of one unit: skips duplicates, writes keys."""

    def __init__(self, task: KeyedSourceTask, unit: SourceUnit, context: TaskContext) -> None:
        keys, schema = task.keys, task.write.schema
        self._usable = 0
        self._skipped = self._ignored = 0
        self._changes = _changes(task)
        self._where = unit.path
        self._key_bytes = 0
        self._storage = context.storage
        self._place = unit.place
        self._key = columns_of(schema, keys.ids)
        self._order = columns_of(schema, keys.order)
        self._columns = {column: schema.find_column_name(column) for column in keys.columns}
        name = f"{keys.name}-{self._place:05d}-{context.attempt}"
        self._path = locations.join(keys.folder, f"{name}-keys.arrow")
        self._losers = (
            None if keys.losers is None else lost_rows(self._storage, keys.losers, self._place)
        )
        self._files = ExitStack()
        self._keys: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch to write."""
        inserts = None
        if self._changes is not None:
            known = self._changes.known(batch, self._where)
            self._skipped += batch.num_rows - known.rows.num_rows
            self._ignored += known.ignored
            batch, inserts = known.rows, known.inserts
        start, self._usable = self._usable, self._usable + batch.num_rows
        if self._losers is None:
            keys = self._with_columns(cut(batch, [*self._key, *self._order]), batch)
            if inserts is not None:
                keys = keys.append_column(DELETED, pa.array(~inserts))
            self._keep_keys(keys)
            return batch if inserts is None else batch.filter(pa.array(inserts))
        inside = np.searchsorted(self._losers, [start, self._usable])
        lost = self._losers[inside[0] : inside[1]]
        if not len(lost) and inserts is None:
            return batch
        wins = np.ones(batch.num_rows, np.bool_) if inserts is None else inserts
        wins[lost - start] = False
        return batch.filter(pa.array(wins))

    def _with_columns(self, keys: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Append the columns that are written beside the key."""
        if not self._columns:
            return keys
        beside = [rows.column(name) for name in self._columns.values()]
        names = [column_name(column) for column in self._columns]
        return pa.RecordBatch.from_arrays(
            [*keys.columns, *beside], names=[*keys.schema.names, *names]
        )

    def _keep_keys(self, keys: pa.RecordBatch) -> None:
        if not keys.num_rows:
            return
        if self._keys is None:
            file = batch_file(self._storage, self._path)
            self._keys = self._files.enter_context(file)
        self._keys.write_batch(keys)
        self._key_bytes += keys.nbytes

    def report(self, rejects: UnitRejects) -> UnitReport:
        """Return the unit's report for the driver, with its rejected rows."""
        return UnitReport(
            place=self._place,
            rows_read=self._usable + self._skipped + rejects.count,
            rows=self._usable,
            keys=None if self._keys is None else self._path,
            key_bytes=self._key_bytes,
            rejects=rejects.report(),
            skipped=self._skipped,
            ignored=self._ignored,
        )


def lost_rows(storage: Any, losers: Sequence[str], place: int) -> Any:
    """Return the rows of a unit that are replaced by another row with the same key, ascending."""
    rows = [np.zeros(0, np.int64)]
    for path in losers:
        for batch in batches_in(storage, path):
            of_unit = batch.column("unit").to_numpy() == place
            rows.append(batch.column("row").to_numpy()[of_unit])
    return np.sort(np.concatenate(rows))
