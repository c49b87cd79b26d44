"""Merge changes of one key before they are sent and written: the last one replaces those before it.

This is correct only if each change replaces the whole row of its key, as in the mode ``upsert``. Source: Paimon's
local merge, https://paimon.apache.org/docs/master/maintenance/write-performance/#local-merging.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lake.core.data.deletes.delta_writer import Kinds
from lake.core.data.keys.last_rows import last_rows

Changes = tuple[pa.RecordBatch, Kinds]

# Changes are first merged at this size: if few keys change often, they stay in the processor's cache.
_MERGED_BYTES = 8 * 1024 * 1024


class LocalMerge:
    """Keeps the last change of each key until these changes have a size.

    Args:
        key: the names of the key's columns.
        limit: the most bytes of merged changes that are kept; 0 to return all changes as they are.
    """

    def __init__(self, key: Sequence[str], limit: int) -> None:
        self._key = list(key)
        self._limit = limit
        self._pending: list[Changes] = []
        self._bytes = 0
        self._next = self._first = min(limit, _MERGED_BYTES)
        # Superseded changes since the last `take_count()`.
        self._merged = 0

    def take_count(self) -> int:
        """Return the number of changes that later ones replaced, since the last call."""
        merged, self._merged = self._merged, 0
        return merged

    def add(self, rows: pa.RecordBatch, kinds: Kinds) -> Iterator[Changes]:
        """Add changes in their order; yield those that are not kept."""
        if not self._limit:
            yield rows, kinds
            return
        if not rows.num_rows:
            return
        self._pending.append((rows, kinds))
        self._bytes += rows.nbytes + kinds.nbytes
        if self._bytes < self._next:
            return
        self._pending = list(self._last_of_each())
        self._bytes = sum(batch.nbytes + of.nbytes for batch, of in self._pending)
        # After a merge that left much, the next one waits for as much again: else each batch would cause a merge.
        self._next = max(self._first, 2 * self._bytes)
        if self._bytes >= self._limit:
            yield from self._flushed()

    def rest(self) -> Iterator[Changes]:
        """Yield the changes that were kept."""
        self._pending = list(self._last_of_each())
        yield from self._flushed()

    def _flushed(self) -> Iterator[Changes]:
        pending, self._pending = self._pending, []
        self._bytes, self._next = 0, self._first
        yield from pending

    def _last_of_each(self) -> Iterator[Changes]:
        """Yield the last change of each key, in the order of the changes."""
        if not self._pending:
            return
        table = pa.Table.from_batches([rows for rows, _ in self._pending])
        kinds = np.concatenate([kinds for _, kinds in self._pending])
        last = last_rows(table.select(self._key))
        self._merged += len(kinds) - len(last)
        if len(last) == len(kinds):
            yield from self._pending
            return
        start, kept = 0, kinds[last]
        for batch in table.take(pa.array(last)).to_batches():
            yield batch, kept[start : start + batch.num_rows]
            start += batch.num_rows
