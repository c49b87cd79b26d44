"""Choose one source row per key, by buckets of keys that each fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lake.core.base import locations
from lake.core.base.arrow import Int64s, Mask
from lake.core.base.plain import PlainData
from lake.core.data.keys.encoding import hash_keys, partition_of
from lake.core.data.keys.index import KeyIndex
from lake.core.engine.shuffle import ShuffleBuffer
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.checksummed_batches import batch_file, batches_in

_BATCH_ROWS = 256 * 1024
# The column that says which changes delete the row of their key, beside the key and the order.
DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitKeys(PlainData):
    """A file with the keys of one unit of the source, and the unit's index."""

    place: int
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateTask(PlainData):
    """Keep one row per key, or send keys to their buckets.

    Args:
        key_columns: the number of key columns; the columns after them are the order's.
        folder: the folder for new files.
        name: the prefix of their names.
        files: the keys to read, in the input's order.
        bucket: the number of the bucket.
        buckets: the number of buckets that keys are sent to.
        first: of rows with one key, keep the first of the order instead of the last.
        with_rows: write, beside the keys, the order's columns and the unit and number of each row.
    """

    key_columns: int
    folder: str
    name: str
    files: Sequence[UnitKeys] = ()
    bucket: int = 0
    buckets: int = 0
    first: bool = False
    with_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketReport(PlainData):
    """The distinct keys of one bucket.

    Args:
        bucket: the bucket's number.
        keys: the file of its keys; None if no key was sent to it.
        rows: the number of its keys.
        losers: the file of rows that are replaced by another row with the same key; None if there is none.
        lost: the number of these rows.
        merged: the file of the merged rows of the keys; None if rows are not merged.
        deleted: for a change log, a serialised bitmap of the keys whose last change is a delete; else None.
        late: the number of these keys that have an older insert after it in the input.
    """

    bucket: int
    keys: str | None = None
    rows: int = 0
    losers: str | None = None
    lost: int = 0
    merged: str | None = None
    deleted: bytes | None = None
    late: int = 0


def deduplicate(task: DeduplicateTask, context: TaskContext) -> Iterator[BucketReport]:
    """Deduplicate the keys of all units as one bucket; reports the files of its keys and of its duplicate rows."""
    yield _deduplicate(source_keys(task.files, context), task, context)


def send_keys(task: DeduplicateTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send keys to their buckets."""
    outbox = ShuffleBuffer()
    width = task.key_columns
    for batch in source_keys(task.files, context):
        context.check_cancelled()
        buckets = partition_of(hash_keys(_first(batch, width)), task.buckets)
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=task.buckets))
        in_order = batch.take(pa.array(order))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                yield from outbox.add(bucket, in_order.slice(start, end - start))
            start = end
    yield from outbox.drain()


def deduplicate_sent(
    task: DeduplicateTask, blobs: Iterable[bytes], context: TaskContext
) -> Iterator[BucketReport]:
    """Deduplicate the keys that were sent to one bucket, as `deduplicate` does."""
    batches = (batch for blob in blobs for batch in pa.ipc.open_stream(blob))
    yield _deduplicate(batches, task, context)


def source_keys(files: Iterable[UnitKeys], context: TaskContext) -> Iterator[pa.RecordBatch]:
    """Yield the units' keys with the unit and row number of each."""
    for file in files:
        row = 0
        for batch in batches_in(context.storage, file.keys):
            rows = np.arange(row, row + batch.num_rows)
            unit = np.full(batch.num_rows, file.place, np.int32)
            row += batch.num_rows
            columns = [*batch.columns, pa.array(unit), pa.array(rows)]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "unit", "row"])


def _first(batch: Any, columns: int) -> Any:
    return batch.select(list(range(columns)))


def _deduplicate(
    batches: Iterable[pa.RecordBatch], task: DeduplicateTask, context: TaskContext
) -> BucketReport:
    table = pa.Table.from_batches(batches)
    context.check_cancelled()
    width = task.key_columns
    keys = _first(table, width)
    order = [name for name in table.column_names[width:] if name not in {DELETED, "unit", "row"}]
    strength = ranks(table, order) if order else None
    if task.first:
        strength = -(np.arange(table.num_rows) if strength is None else strength)
    index = KeyIndex.build(keys, rank=strength)
    winners = index.rows()
    lost = table.num_rows - len(winners)
    # In the order of the index: the tasks that match these keys build theirs fastest from it.
    chosen = (table if task.with_rows else keys).take(pa.array(winners))
    name = f"{task.name}-{task.bucket:05d}-{context.attempt}"
    path = locations.join(task.folder, f"{name}-winners.arrow")
    write_table(context, path, chosen)
    losers = None
    if lost:
        kept = np.zeros(table.num_rows, np.bool_)
        kept[winners] = True
        losers = locations.join(task.folder, f"{name}-losers.arrow")
        write_table(context, losers, table.select(["unit", "row"]).filter(pa.array(~kept)))
    report = BucketReport(
        bucket=task.bucket,
        keys=path,
        rows=len(winners),
        losers=losers,
        lost=lost,
    )
    if DELETED not in table.column_names:
        return report
    deleted = table[DELETED].to_numpy()
    return replace(
        report,
        deleted=BitMap(np.flatnonzero(deleted[winners]).tolist()).serialize(),
        late=_late_inserts(keys, index, deleted) if order and lost else 0,
    )


def _late_inserts(keys: pa.Table, index: KeyIndex, deleted: Mask) -> int:
    """Return the number of keys that are deleted although an insert, older by the order, comes after the delete."""
    winners = np.concatenate([index.find(batch) for batch in keys.to_batches()])
    late = ~deleted & deleted[winners] & (np.arange(keys.num_rows) > winners)
    return len(np.unique(winners[late]))


def ranks(table: pa.Table, order: list[str]) -> Int64s:
    """Return each row's rank in the order; equal rows keep the input's order, NULLs come first."""
    by = []
    for name in order:
        # Arrow's option for the position of NULLs differs between versions.
        table = table.append_column(f"{name} is there", pc.is_valid(table[name]))
        by += [(f"{name} is there", "ascending"), (name, "ascending")]
    weakest_first = pc.sort_indices(table, sort_keys=by).to_numpy()
    found = np.empty(table.num_rows, np.int64)
    found[weakest_first] = np.arange(table.num_rows)
    return found


def write_table(context: TaskContext, path: str, table: pa.Table) -> None:
    """Write a table to a temporary file, in batches."""
    with batch_file(context.storage, path) as file:
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            file.write_batch(batch)
