"""Rows in parts that can be read independently: in memory, or, if they are many, on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Int64s
from lake.core.data.sorting.spill_file import BatchSpool

PARTS = 256


class PartSpool:
    """Collects rows of one schema, and returns them as often as wanted.

    The file has no name, so the system frees it however the process ends.

    Args:
        rows: what the rows are, for messages.
        part_of: returns a number below `PARTS` for each row; rows with one number are in one part.
        memory_bytes: how much to keep in memory before writing to disk.
    """

    def __init__(
        self, rows: str, part_of: Callable[[pa.RecordBatch], Int64s], memory_bytes: int
    ) -> None:
        self._part_of = part_of
        self._limit = memory_bytes
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._spool = BatchSpool(rows)
        self._pieces: dict[int, list[int]] = defaultdict(list)
        self.is_stored = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            StorageError: there is not enough space.
        """
        if batch.num_rows:
            self._held.append(batch)
            self._bytes += batch.nbytes
        if self._bytes > self._limit:
            self.store()

    def store(self) -> None:
        """Write the rows that are in memory to disk; from then on they are in parts.

        Raises:
            StorageError: there is not enough space.
        """
        self.is_stored = True
        if not self._held:
            return
        rows = pa.concat_batches(self._held)
        self._held, self._bytes = [], 0
        parts = self._part_of(rows)
        order = np.argsort(parts, kind="stable")
        rows, edges = rows.take(pa.array(order)), np.searchsorted(parts[order], range(PARTS + 1))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            piece = rows.slice(edges[number], edges[number + 1] - edges[number])
            self._pieces[number].append(self._spool.write(piece))

    def part(self, number: int) -> pa.RecordBatch | None:
        """Return a part; None if it has no rows. If nothing is on disk, part 0 has all rows."""
        if self.is_stored:
            self.store()
            pieces = [self._spool.read(piece) for piece in self._pieces.get(number, ())]
            return pa.concat_batches(pieces) if pieces else None
        if number or not self._held:
            return None
        if len(self._held) > 1:
            self._held = [pa.concat_batches(self._held)]
        return self._held[0]

    def parts(self) -> Iterator[pa.RecordBatch]:
        """Yield the parts that have rows, in the order of their numbers."""
        for number in range(PARTS):
            if (rows := self.part(number)) is not None:
                yield rows

    def close(self) -> None:
        """Free the disk space."""
        self._spool.close()
