"""Which of the source's rows stands for each key: decided by buckets of keys, each small enough for memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core import locations
from lake.core.engine.shuffle import ShuffleBuffer
from lake.core.engine.tasks import TaskContext
from lake.core.keys.encoding import Int64s, hash_keys, partition_of
from lake.core.keys.index import KeyIndex
from lake.core.plain import PlainData
from lake.core.upsert.checksummed_batches import batch_file, batches_in

# Beyond so many different values a column is told by its least and greatest.
_MOST_VALUES = 100
_LONGEST_VALUE = 200
_BATCH_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitKeys(PlainData):
    """A file of the keys of one unit of the source, and the unit's place among all."""

    place: int
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateTask(PlainData):
    """Keep one row of each key, or send keys to their buckets.

    Args:
        key_columns: how many of the columns are the key's; the others are the order's.
        folder: where new files go.
        name: how their names begin.
        files: keys to read, in the input's order.
        bucket: the number of the bucket.
        buckets: how many buckets keys are sent to.
    """

    key_columns: int
    folder: str
    name: str
    files: Sequence[UnitKeys] = ()
    bucket: int = 0
    buckets: int = 0


def deduplicate(task: DeduplicateTask, context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Settle the keys of all units as one bucket; reports where its keys are and who lost."""
    yield _deduplicate(_source_keys(task.files, context), task, context)


def send_keys(task: DeduplicateTask, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send keys to their buckets, of which there are ``buckets``."""
    outbox = ShuffleBuffer(task.buckets)
    width = task.key_columns
    for batch in _source_keys(task.files, context):
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
    yield from outbox.rest()


def deduplicate_sent(
    task: DeduplicateTask, blobs: Iterable[bytes], context: TaskContext
) -> Iterator[Mapping[str, Any]]:
    """Settle the keys that were sent to one bucket, as `deduplicate` does."""
    batches = (batch for blob in blobs for batch in pa.ipc.open_stream(blob))
    yield _deduplicate(batches, task, context)


def _source_keys(files: Iterable[UnitKeys], context: TaskContext) -> Iterator[pa.RecordBatch]:
    """Yield units' keys with where each row was."""
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
) -> dict[str, Any]:
    table = pa.Table.from_batches(batches)
    context.check_cancelled()
    width = task.key_columns
    keys = _first(table, width)
    order = [name for name in table.column_names[width:] if name not in {"unit", "row"}]
    index = KeyIndex.build(keys, rank=_ranks(table, order) if order else None)
    winners = index.rows()
    lost = table.num_rows - len(winners)
    # Tasks that look for these keys build their index fastest of this order.
    settled = keys.take(pa.array(winners))
    name = f"{task.name}-{task.bucket:05d}-{context.attempt}"
    path = locations.join(task.folder, f"{name}-settled.arrow")
    _write(context, path, settled)
    losers = None
    if lost:
        stays = np.zeros(table.num_rows, np.bool_)
        stays[winners] = True
        losers = locations.join(task.folder, f"{name}-losers.arrow")
        _write(context, losers, table.select(["unit", "row"]).filter(pa.array(~stays)))
    return {
        "bucket": task.bucket,
        "keys": path,
        "rows": len(winners),
        "losers": losers,
        "lost": lost,
        "values": [column_values(column) for column in settled.columns],
    }


def _ranks(table: pa.Table, order: list[str]) -> Int64s:
    """Return each row's place in the order; equal rows keep the input's, NULLs come first."""
    by = []
    for name in order:
        # What to do with NULLs is asked in other ways by other versions of Arrow.
        table = table.append_column(f"{name} is there", pc.is_valid(table[name]))
        by += [(f"{name} is there", "ascending"), (name, "ascending")]
    weakest_first = pc.sort_indices(table, sort_keys=by).to_numpy()
    ranks = np.empty(table.num_rows, np.int64)
    ranks[weakest_first] = np.arange(table.num_rows)
    return ranks


def _write(context: TaskContext, path: str, table: pa.Table) -> None:
    with batch_file(context.storage, path) as file:
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            file.write_batch(batch)


def column_values(column: pa.ChunkedArray) -> list[Any] | None:
    """Return what a filter for a column's values takes, as texts: all of them if they are few.

    Returns:
        ``["in", values]``, ``["between", least, greatest]``, or None for a type without exact texts.
    """
    kind = column.type
    exact = (
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
    )
    if not exact or not len(column):
        return None
    different = pc.unique(column)
    found = different
    if len(different) > _MOST_VALUES:
        ends = pc.min_max(different)
        found = pa.concat_arrays([pa.repeat(ends["min"], 1), pa.repeat(ends["max"], 1)])
    texts = found.cast(pa.string()).to_pylist()
    if any(len(text) > _LONGEST_VALUE for text in texts):
        return None
    return ["in", texts] if found is different else ["between", *texts]
