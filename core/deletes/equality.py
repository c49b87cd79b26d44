"""Which rows equality deletes remove: by key and sequence number, in bounded memory.

While the deletes' keys fit in memory, each batch of rows is looked up as it comes. Otherwise they are sorted
by hash into temporary files, and rows are looked up many at a time: the data's key columns are read
beforehand and give positions. Rule: https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from lake.core.deletes.spilled_equality import NEVER, RowKeys, SpilledDeletes, needed_bytes
from lake.core.errors import InvalidRequestError
from lake.core.keys.encoding import Int64s, Mask
from lake.core.keys.index import NOT_FOUND, KeyIndex

MEMORY_BYTES = 112 * 1024 * 1024
# What an index takes at most for a key (measured), beside the keys themselves thrice.
_INDEX_BYTES = 40


class EqualityDeletes:
    """The equality deletes of one list of columns and one scope (a partition, or all of the table).

    A row is deleted if a delete of an equal key has a larger sequence number than the row's file. If
    `in_memory`, `deleted` tells of any batch; else only `deleted_rows` tells, and much at once.
    Use it as a context manager, or close it.
    """

    def __init__(self, index: _Index | None, spool: SpilledDeletes | None, largest: int) -> None:
        self._index = index
        self._spool = spool
        self._largest = largest

    @classmethod
    def load(
        cls, batches: Iterable[tuple[pa.RecordBatch, int]], *, memory_bytes: int = MEMORY_BYTES
    ) -> Self:
        """Read deletes.

        Args:
            batches: rows of delete files, their key columns only, always in one order and of the same types,
                each with the file's data sequence number.
            memory_bytes: about what this may take, now and while it is used.

        Raises:
            RefusedError: a key column is nested.
            EngineError: there is no room for temporary files.
        """
        waiting = _Waiting()
        spool: SpilledDeletes | None = None
        try:
            for batch, sequence_number in batches:
                waiting.add(batch, sequence_number)
                if spool is None and waiting.index_bytes > memory_bytes:
                    # Sorting takes more than an index does, and what comes and goes leaves gaps in memory.
                    spool = SpilledDeletes(memory_bytes // 2)
                while spool is not None and waiting.sort_bytes > memory_bytes // 4:
                    spool.add(waiting.take(memory_bytes // 4))
            if spool is None:
                return cls(_Index.of(waiting.take()), None, waiting.largest)
            while waiting.batches:
                spool.add(waiting.take(memory_bytes // 4))
            spool.finish()
        except BaseException:
            if spool is not None:
                spool.close()
            raise
        return cls(None, spool, waiting.largest)

    @property
    def in_memory(self) -> bool:
        """Whether `deleted` may be asked."""
        return self._spool is None

    def may_delete(self, sequence_number: int) -> bool:
        """Whether rows of files of a data sequence number can be deleted at all."""
        return sequence_number < self._largest

    def deleted(self, keys: pa.RecordBatch, sequence_number: int) -> Mask:
        """Return which rows of a batch of a data sequence number are deleted.

        Raises:
            InvalidRequestError: the columns have other types than the deletes', or these lie on disk.
        """
        if self._spool is not None:
            raise InvalidRequestError("these equality deletes are too many to be asked by batch")
        if self._index is None or not self.may_delete(sequence_number):
            return np.zeros(keys.num_rows, np.bool_)
        return self._index.sequences(keys) > sequence_number

    def deleted_rows(self, rows: Iterable[RowKeys]) -> Iterator[tuple[int, Int64s]]:
        """Yield (file, ascending positions) of deleted rows; a file's may come in several parts.

        All the deletes are read once for about as many rows as memory holds keys of: give it the rows of
        many files at once rather than of one after the other.
        """
        if self._spool is not None:
            yield from self._spool.deleted_rows(rows)
            return
        for part in rows:
            found = np.flatnonzero(self.deleted(part.keys, part.sequence_number))
            if len(found):
                yield part.file, found + part.first_position

    def close(self) -> None:
        """Remove temporary files. May be called twice."""
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(slots=True)
class _Waiting:
    """Deletes as they were read."""

    batches: list[tuple[pa.RecordBatch, int]] = field(default_factory=list)
    index_bytes: int = 0
    sort_bytes: int = 0
    largest: int = NEVER

    def add(self, batch: pa.RecordBatch, sequence_number: int) -> None:
        if not batch.num_rows:
            return
        self.batches.append((batch, sequence_number))
        self.index_bytes += 3 * batch.nbytes + _INDEX_BYTES * batch.num_rows
        self.sort_bytes += needed_bytes(batch)
        self.largest = max(self.largest, sequence_number)

    def take(self, most_bytes: int | None = None) -> list[tuple[pa.RecordBatch, int]]:
        """Return the last ones, as many as can be sorted in about so much memory but at least one, or all."""
        taken: list[tuple[pa.RecordBatch, int]] = []
        rest = -1 if most_bytes is None else self.sort_bytes - max(most_bytes, 1)
        while self.batches and self.sort_bytes > rest:
            taken.append(self.batches.pop())
            self.sort_bytes -= needed_bytes(taken[-1][0])
        return taken


class _Index:
    """Deletes in memory."""

    def __init__(self, keys: KeyIndex, ends: Int64s, sequences: Int64s) -> None:
        self._keys = keys
        self._ends = ends
        # One more for rows that no delete equals.
        self._sequences = np.append(sequences, NEVER)

    @classmethod
    def of(cls, batches: list[tuple[pa.RecordBatch, int]]) -> _Index | None:
        """Index deletes, which are taken out of the list; None if there are none."""
        if not batches:
            return None
        # Of equal keys the last one is found: that must be the one that deletes most.
        batches.sort(key=lambda item: item[1])
        sequences = np.array([number for _, number in batches], np.int64)
        ends = np.cumsum([batch.num_rows for batch, _ in batches])
        table = pa.Table.from_batches([_unnamed(batch) for batch, _ in batches]).combine_chunks()
        # The keys are there once, not twice, while they are sorted.
        batches.clear()
        return cls(KeyIndex.build(table), ends, sequences)

    def sequences(self, keys: pa.RecordBatch) -> Int64s:
        """Return the largest sequence number of a delete of each key."""
        rows = self._keys.find(keys)
        numbers = np.searchsorted(self._ends, rows, side="right")
        numbers[rows == NOT_FOUND] = len(self._sequences) - 1
        return self._sequences[numbers]


def _unnamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns are named by their places: files of one table may name them otherwise."""
    names = [str(place) for place in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(batch.columns, names=names)
