"""The tasks of a change log's load: send rows, in order, to the writer of their key, which writes files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lake.core.base.plain import PlainData
from lake.core.data.deletes.delta_writer import (
    INSERT,
    UPDATE_AFTER,
    UPSERT,
    DeltaSettings,
    DeltaWriter,
    Kinds,
)
from lake.core.data.keys.encoding import hash_keys, partition_of
from lake.core.data.rows.reader import prefetch
from lake.core.engine.shuffle import ShuffleBuffer, decode_report, encode_report
from lake.core.engine.tasks import TaskContext
from lake.core.load.changelog_load.local_merge import Changes, LocalMerge
from lake.core.load.ingest.payloads import SourceTask, SourceUnit, WriteReport
from lake.core.load.ingest.rejects import RejectReport
from lake.core.load.ingest.tasks import task_units
from lake.core.load.upsert.change_rows import ChangeRows
from lake.core.load.upsert.source_tasks import key_check
from lake.core.spec.types.transforms import Indices, group_indices, partition_number
from lake.core.table.manifests.data_files import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesTask(SourceTask):
    """Read units of a change log and write or send their changes.

    Args:
        delta: the settings for writing changes.
        kinds: the column with the row kind.
        by_partition: whether rows are sent by partition, not by key.
        ignore_deletes: whether rows of kind -D are left out.
        local_merge: the size at which the changes of a task are merged by key; 0 to merge none.
    """

    delta: DeltaSettings
    kinds: str
    by_partition: bool
    ignore_deletes: bool = False
    local_merge: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveChangesTask(PlainData):
    """Write the changes that were sent to one reducer."""

    task: int
    delta: DeltaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts(PlainData):
    """The changes that a task read since its last report.

    Args:
        task: the task's number.
        rows_read: the number of rows of the change log.
        rows: the number of rows to insert.
        ignored: the number of rows of kind -D that are left out.
        merged: the number of changes that a later change of their key replaced.
        rejects: the rows that are set aside.
    """

    task: int
    rows_read: int = 0
    rows: int = 0
    ignored: int = 0
    merged: int = 0
    rejects: Sequence[RejectReport] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesReport(WriteReport):
    """A `WriteReport`, with new delete files, and the counts of the tasks that read the changes."""

    deletes: Sequence[DataFile] = ()
    counts: Sequence[ChangeCounts] = ()


def write_changes(task: ChangesTask, context: TaskContext) -> Iterator[ChangesReport]:
    """Write a task's changes; reports each unit's end, then the files."""
    settings = task.delta
    changes = _Changes(task, context)
    with DeltaWriter(context.storage, settings, task=task.task, attempt=context.attempt) as writer:
        for _, batches in changes.units():
            for rows, kinds in batches:
                writer.write(rows, kinds)
            counts = changes.take_counts()
            yield ChangesReport(rows_read=counts.rows_read, counts=[counts])
        for rows, kinds in changes.rest():
            writer.write(rows, kinds)
        files = writer.close()
    yield ChangesReport(files=files.data, deletes=files.deletes, counts=[changes.take_counts()])


def send_changes(task: ChangesTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send each of a task's changes to the reducer of its partition or key."""
    outbox = ShuffleBuffer()
    changes = _Changes(task, context)
    for _, batches in changes.units():
        for rows, kinds in batches:
            yield from _sent(rows, kinds, task, outbox)
    for rows, kinds in changes.rest():
        yield from _sent(rows, kinds, task, outbox)
    yield from outbox.drain()
    yield 0, encode_report(changes.take_counts())


def _sent(
    rows: pa.RecordBatch, kinds: Kinds, task: ChangesTask, outbox: ShuffleBuffer
) -> Iterator[tuple[int, bytes]]:
    """Send changes to the reducers of their partitions or keys; yield what is full."""
    if not rows.num_rows:
        return
    reducers = _reducers(rows, task)
    order = np.argsort(reducers, kind="stable")
    sent = _with_kinds(rows, kinds).take(pa.array(order))
    cuts = np.flatnonzero(np.diff(reducers[order])) + 1
    for start, end in pairwise([0, *cuts, len(order)]):
        reducer = int(reducers[order[start]])
        yield from outbox.add(reducer, sent.slice(start, end - start))


def receive_changes(
    task: ReceiveChangesTask, blobs: Iterable[bytes], context: TaskContext
) -> Iterator[ChangesReport]:
    """Write the changes that were sent to one reducer; reports the files, and the senders' counts."""
    settings = task.delta
    senders = []
    with DeltaWriter(context.storage, settings, task=task.task, attempt=context.attempt) as writer:
        for blob in blobs:
            context.check_cancelled()
            stream = pa.ipc.open_stream(blob)
            if (counts := decode_report(stream, ChangeCounts)) is not None:
                senders.append(counts)
            for batch in stream:
                rows = batch.select(range(batch.num_columns - 1))
                writer.write(rows, batch.column(batch.num_columns - 1).to_numpy())
        files = writer.close()
    yield ChangesReport(files=files.data, deletes=files.deletes, counts=senders)


def _with_kinds(rows: pa.RecordBatch, kinds: Kinds) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.array(kinds)], schema=rows.schema.append(pa.field("", pa.int8()))
    )


def _reducers(rows: pa.RecordBatch, task: ChangesTask) -> Indices:
    settings, count = task.delta, task.reducers
    if not task.by_partition:
        return partition_of(hash_keys(rows.select(settings.key_names)), count)
    reducers = np.empty(rows.num_rows, np.int64)
    write = settings.write
    for partition, members in group_indices(rows, write.spec, write.schema):
        reducers[members] = partition_number(partition, count)
    return reducers


class _Changes:
    """The changes that a task reads, checked."""

    def __init__(self, task: ChangesTask, context: TaskContext) -> None:
        settings = task.delta
        self._task = task
        names, write = settings.key_names, settings.write
        self._rows = ChangeRows(
            write.schema,
            task.kinds,
            list(settings.key_ids),
            by_key=settings.mode == UPSERT,
            ignore_deletes=task.ignore_deletes,
        )
        self._check = key_check(names, lambda batch: batch.select(names).columns, self._rows.shown)
        self._context = context
        self._counts = dict.fromkeys(("rows_read", "rows", "ignored"), 0)
        self._rejects: list[RejectReport] = []
        self._merge = LocalMerge(names, task.local_merge)

    def units(self) -> Iterator[tuple[SourceUnit, Iterator[Changes]]]:
        """Yield each unit with the changes to write, without those that have no effect; `rest` yields the others."""
        units = task_units(self._task, self._rows.schema, self._context, [self._check])
        for unit, batches, rejects in units:
            yield unit, self._merged(self._known(batches, unit.path))
            self._counts["rows_read"] += rejects.count
            self._rejects.append(rejects.report())

    def take_counts(self) -> ChangeCounts:
        """Return the counts since the last call, with the rejected rows of the units that are read."""
        counts = ChangeCounts(
            **self._counts,
            merged=self._merge.take_count(),
            task=self._task.task,
            rejects=self._rejects,
        )
        self._counts = dict.fromkeys(self._counts, 0)
        self._rejects = []
        return counts

    def _known(
        self, batches: Iterator[pa.RecordBatch], where: str
    ) -> Iterator[tuple[pa.RecordBatch, Kinds]]:
        for batch in prefetch(batches):
            self._context.check_cancelled()
            self._counts["rows_read"] += batch.num_rows
            known = self._rows.known(batch, where)
            self._counts["ignored"] += known.ignored
            yield known.rows, known.kinds

    def rest(self) -> Iterator[Changes]:
        """Yield the changes that were kept to be merged with later ones, once all units are read."""
        yield from self._counted(self._merge.rest())

    def _merged(self, changes: Iterator[Changes]) -> Iterator[Changes]:
        for rows, kinds in changes:
            yield from self._counted(self._merge.add(rows, kinds))

    def _counted(self, changes: Iterator[Changes]) -> Iterator[Changes]:
        """Count the rows that are inserted."""
        for rows, kinds in changes:
            inserts = (kinds == INSERT) | (kinds == UPDATE_AFTER)
            self._counts["rows"] += int(np.count_nonzero(inserts))
            yield rows, kinds
