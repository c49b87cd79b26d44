"""External sort: sorts any number of rows in parts in memory, spills them to disk, and merges them.

The files have no names, so the system frees them however the process ends. A merge takes a block of each part
and outputs the rows that are not greater than the least of the blocks' last keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.data.sorting.key_bytes import byte_order, count_up_to
from lake.core.data.sorting.spill_file import BatchSpool

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.data.sorting.sort_keys import RowOrder

MEMORY_BYTES = 128 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
_TAKEN_BYTES = 8 * _BLOCK_BYTES
# The number of parts that are merged at a time: one block of each is in memory.
_MOST_RUNS = 64
_FEWEST_RUNS = 4
# The last column of a batch with keys, whatever the names of the others.
_KEY = "key"
_ROWS = "rows that are sorted"


def with_keys(batch: pa.RecordBatch, order: RowOrder, schema: Schema) -> pa.RecordBatch:
    """Return rows with their sort keys as the last column."""
    return batch.append_column(_KEY, order.keys(batch, schema))


def without_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without the last column."""
    return batch.select(list(range(batch.num_columns - 1)))


def keys_of(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return the last column."""
    return batch.column(batch.num_columns - 1)


def in_order(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows with keys, sorted by their keys, in blocks."""
    rows = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    del batches
    order = byte_order(keys_of(rows))
    if order is None:
        yield from _blocks(rows, _BLOCK_BYTES)
        return
    # The order is applied in parts: small parts use memory again, while a large copy needs new memory.
    start = 0
    for part in _blocks(rows, _TAKEN_BYTES):
        end = start + part.num_rows
        yield from _blocks(rows.take(pa.array(order[start:end])), _BLOCK_BYTES)
        start = end


@dataclass(slots=True)
class RowSorter:
    """Accepts rows with keys and returns them in order.

    Args:
        memory_bytes: the size of the rows in memory before they are spilled to disk.
        check_cancelled: called between steps; raises to stop.
    """

    memory_bytes: int = MEMORY_BYTES
    check_cancelled: Callable[[], None] = lambda: None
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    # The index is the number of merges that produced the parts.
    _levels: list[list[BatchSpool]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self.memory_bytes:
            self._spill()

    def ordered(self) -> Iterator[pa.RecordBatch]:
        """Return all rows in order; no more rows may be added."""
        if not self._levels:
            if self._held:
                yield from in_order(self._taken())
            return
        self._spill()
        yield from self._merged([run for level in self._levels for run in level])

    def close(self) -> None:
        """Free memory and disk."""
        self._held = []
        for level in self._levels:
            for run in level:
                run.close()
        self._levels = []

    def _spill(self) -> None:
        if not self._held:
            return
        self.check_cancelled()
        run = BatchSpool(_ROWS)
        for block in in_order(self._taken()):
            run.write(block)
        self._keep(run, 0)

    def _taken(self) -> list[pa.RecordBatch]:
        """Return the rows in memory, and forget them."""
        held, self._held, self._bytes = self._held, [], 0
        return held

    def _keep(self, run: BatchSpool, level: int) -> None:
        """Keep a part, and merge the parts of a level when there are many."""
        if level == len(self._levels):
            self._levels.append([])
        runs = [*self._levels[level], run]
        # A block contains at least one row, however large it is.
        wide = len(runs) >= _FEWEST_RUNS and sum(item.widest for item in runs) > self.memory_bytes
        if len(runs) < _MOST_RUNS and not wide:
            self._levels[level] = runs
            return
        self._levels[level] = []
        together = BatchSpool(_ROWS)
        for block in self._merged(runs):
            together.write(block)
        for item in runs:
            item.close()
        self._keep(together, level + 1)

    def _merged(self, runs: Sequence[BatchSpool]) -> Iterator[pa.RecordBatch]:
        heads = [_Head(run) for run in runs]
        while heads := [head for head in heads if head.rows is not None]:
            self.check_cancelled()
            bound = min((head.last for head in heads if head.more), default=None)
            yield from in_order([part for head in heads if (part := head.take(bound)) is not None])


class _Head:
    """The read position in a part: the rows of its current block that were not returned yet."""

    def __init__(self, run: BatchSpool) -> None:
        self._run = run
        self._next = 0
        self.rows: pa.RecordBatch | None = None
        self.last = b""
        self._advance()

    @property
    def more(self) -> bool:
        """Whether there are blocks after the current one."""
        return self._next < len(self._run)

    def take(self, bound: bytes | None) -> pa.RecordBatch | None:
        """Return rows up to a bound; None if there are none."""
        rows = self.rows
        if rows is None:
            return None
        count = rows.num_rows if bound is None else count_up_to(keys_of(rows), bound)
        if count < rows.num_rows:
            self.rows = rows.slice(count)
        else:
            self._advance()
        return rows.slice(0, count) if count else None

    def _advance(self) -> None:
        self.rows = self._run.read(self._next) if self.more else None
        self._next += 1
        if self.rows is not None:
            self.last = keys_of(self.rows)[self.rows.num_rows - 1].as_py()


def _blocks(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    count = max(1, rows.num_rows * most_bytes // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)
