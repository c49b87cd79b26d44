"""The source's side of an upsert on the engine: write rows to data files, and their keys to temporary files.

The keys are written in the order of the rows, one file per unit of the source, so a row is identified by its unit
and its position in the unit. If several rows have the same key, the source is read again without the rows that are
replaced by a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core import locations
from lake.core.columns.defaults import without_write_defaults
from lake.core.engine.shuffle import ShuffleBuffer, encode_report
from lake.core.engine.tasks import TaskContext
from lake.core.errors import BadInputError
from lake.core.ingest.payloads import ReceiveTask, SourceTask, SourceUnit, WriteReport
from lake.core.ingest.tasks import task_units, write_sent
from lake.core.keys.extraction import Mask, columns_of, cut, unusable
from lake.core.options import Option
from lake.core.plain import PlainData
from lake.core.rows.reader import prefetch
from lake.core.rows.sorted_writer import open_ordered_writer
from lake.core.types.transforms import group_rows, partition_number
from lake.core.upsert.checksummed_batches import batch_file, batches_in


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings(PlainData):
    """The settings for the keys of rows.

    Args:
        ids: columns of the key.
        order: columns that decide which of several rows with one key is written.
        rejects: whether rows without a usable key are written to rejects; otherwise they are an error.
        losers: files of rows to skip; None to write the keys.
        folder: the folder for files of keys.
        name: the prefix of their names.
    """

    ids: Sequence[int]
    order: Sequence[int]
    rejects: bool
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
        rejects: the file of rows without a usable key; None if there is none.
        rejected: the number of rows without a usable key.
    """

    place: int
    rows_read: int = 0
    rows: int = 0
    keys: str | None = None
    key_bytes: int = 0
    rejects: str | None = None
    rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWriteReport(WriteReport):
    """A `WriteReport`, with the units that were read completely since the last one."""

    units: Sequence[UnitReport] = ()


def write_rows(task: KeyedSourceTask, context: TaskContext) -> Iterator[KeyedWriteReport]:
    """Read a task's units and write their rows; reports each unit's keys, then the files."""
    settings = task.write
    with open_ordered_writer(context, settings, task=task.task) as writer:
        for unit, batches in task_units(task, _read_schema(task), context):
            with _UnitRows(task, unit, context) as rows:
                for batch in prefetch(batches):
                    context.check_cancelled()
                    writer.write(rows.kept(batch))
            yield KeyedWriteReport(rows_read=rows.read, units=[rows.report()])
        files = writer.close()
    yield KeyedWriteReport(files=files)


def send_rows(task: KeyedSourceTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Read a task's units and send each partition's rows to its reducer; the units' reports go to reducer 0."""
    settings = task.write
    outbox = ShuffleBuffer(task.reducers)
    reports = []
    for unit, batches in task_units(task, _read_schema(task), context):
        with _UnitRows(task, unit, context) as rows:
            for batch in prefetch(batches):
                context.check_cancelled()
                parts = group_rows(rows.kept(batch), settings.spec, settings.schema)
                for partition, part in parts:
                    yield from outbox.add(partition_number(partition, task.reducers), part)
        reports.append(rows.report())
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
    return without_write_defaults(task.write.schema, task.keys.ids)


class _UnitRows:
    """The rows of one unit: rejects rows without a usable key, skips duplicates, writes keys."""

    def __init__(self, task: KeyedSourceTask, unit: SourceUnit, context: TaskContext) -> None:
        keys, schema = task.keys, task.write.schema
        self.read = 0
        self._usable = 0
        self._key_bytes = 0
        self._storage = context.storage
        self._place = unit.place
        self._source_path = unit.path
        self._names = [schema.find_column_name(column) for column in keys.ids]
        self._key = columns_of(schema, keys.ids)
        self._order = columns_of(schema, keys.order)
        self._allows_rejects = keys.rejects
        name = f"{keys.name}-{self._place:05d}-{context.attempt}"
        self._path = locations.join(keys.folder, f"{name}-keys.arrow")
        self._rejects_path = locations.join(keys.folder, f"{name}-rejects.arrow")
        self._losers = (
            None if keys.losers is None else lost_rows(self._storage, keys.losers, self._place)
        )
        self._files = ExitStack()
        self._keys: Any = None
        self._rejects: Any = None
        self._rejected = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch to write."""
        self.read += batch.num_rows
        batch = self._usable_rows(batch)
        start, self._usable = self._usable, self._usable + batch.num_rows
        if self._losers is None:
            self._keep_keys(cut(batch, [*self._key, *self._order]))
            return batch
        inside = np.searchsorted(self._losers, [start, self._usable])
        lost = self._losers[inside[0] : inside[1]]
        if not len(lost):
            return batch
        wins = np.ones(batch.num_rows, np.bool_)
        wins[lost - start] = False
        return batch.filter(pa.array(wins))

    def _usable_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        bad: Mask | None = None
        for name, column in zip(self._names, cut(batch, self._key).columns, strict=True):
            if (problem := unusable(column)) is not None:
                mask, what = problem
                if not self._allows_rejects:
                    raise BadInputError(
                        f"{self._source_path} has {what} in the key column {name}",
                        hint=f"add {Option.REJECTS} PATH to write such rows to a file",
                    )
                bad = mask if bad is None else bad | mask
        if bad is None:
            return batch
        self._reject(batch.filter(pa.array(bad)))
        return batch.filter(pa.array(~bad))

    def _reject(self, batch: pa.RecordBatch) -> None:
        self._rejected += batch.num_rows
        # When the source is read again, they are already written.
        if self._losers is None:
            if self._rejects is None:
                file = batch_file(self._storage, self._rejects_path)
                self._rejects = self._files.enter_context(file)
            self._rejects.write_batch(batch)

    def _keep_keys(self, keys: pa.RecordBatch) -> None:
        if not keys.num_rows:
            return
        if self._keys is None:
            file = batch_file(self._storage, self._path)
            self._keys = self._files.enter_context(file)
        self._keys.write_batch(keys)
        self._key_bytes += keys.nbytes

    def report(self) -> UnitReport:
        """Return the unit's report for the driver."""
        return UnitReport(
            place=self._place,
            rows_read=self.read,
            rows=self._usable,
            keys=None if self._keys is None else self._path,
            key_bytes=self._key_bytes,
            rejects=None if self._rejects is None else self._rejects_path,
            rejected=self._rejected,
        )


def lost_rows(storage: Any, losers: Sequence[str], place: int) -> Any:
    """Return the rows of a unit that are replaced by another row with the same key, ascending."""
    rows = [np.zeros(0, np.int64)]
    for path in losers:
        for batch in batches_in(storage, path):
            of_unit = batch.column("unit").to_numpy() == place
            rows.append(batch.column("row").to_numpy()[of_unit])
    return np.sort(np.concatenate(rows))
