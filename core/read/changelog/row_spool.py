"""Store the rows that a commit removed and added, in memory or, if they are many, in parts on disk.

Rows with one key, or equal rows, are in one part. The file has no name, so the system frees it however the process
ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Mask
from lake.core.data.keys.encoding import partition_of
from lake.core.data.keys.row_identity import encode_rows
from lake.core.data.sorting.spill_file import BatchSpool

MEMORY_BYTES = 48 * 1024 * 1024
PARTS = 256
# The last column; other columns may have the same name.
_SIDE = "inserted"


class RowSpool:
    """Collects rows of both sides and returns them in parts that can be compared independently.

    Args:
        key: the columns whose equal values must be in one part; none for all columns.
        memory_bytes: how much to keep in memory before writing to disk.
    """

    def __init__(self, key: Sequence[str], memory_bytes: int | None = None) -> None:
        self._key = list(key)
        self._limit = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._spool = BatchSpool("rows that do not fit in memory")
        self._pieces: dict[int, list[int]] = defaultdict(list)

    def add(self, batch: pa.RecordBatch, inserted: Mask) -> None:
        """Add rows and whether each was added by the commit."""
        if batch.num_rows:
            batch = batch.append_column(_SIDE, pa.array(inserted))
            self._held.append(batch)
            self._bytes += batch.nbytes
        if self._bytes > self._limit:
            self._spill()

    def parts(self) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """Yield all rows, part by part. No rows may be added afterwards."""
        if not self._pieces:
            if self._held:
                yield _split_sides(self._held)
            return
        self._spill()
        for part in sorted(self._pieces):
            yield _split_sides([self._spool.read(number) for number in self._pieces[part]])

    def close(self) -> None:
        """Free the disk space."""
        self._spool.close()

    def _spill(self) -> None:
        if not self._held:
            return
        rows = pa.concat_batches(self._held)
        self._held, self._bytes = [], 0
        identity = rows.select(self._key) if self._key else _without_side(rows)
        parts = partition_of(encode_rows(identity).hashes(), PARTS)
        order = np.argsort(parts, kind="stable")
        rows, edges = rows.take(pa.array(order)), np.searchsorted(parts[order], range(PARTS + 1))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            piece = rows.slice(edges[number], edges[number + 1] - edges[number])
            self._pieces[number].append(self._spool.write(piece))


def _split_sides(batches: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, Mask]:
    rows = pa.concat_batches(batches)
    return _without_side(rows), rows.column(rows.num_columns - 1).to_numpy(zero_copy_only=False)


def _without_side(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(list(range(rows.num_columns - 1)))
