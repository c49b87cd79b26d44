"""The rows that equality deletes remove: by key and sequence number, in bounded memory.

While the deletes' keys fit in memory, each batch of rows is looked up directly. Otherwise they are sorted
by hash into temporary files, and many rows are looked up together: the data's key columns are read
first and give positions. Rule: https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Int64s, Mask
from lake.core.base.errors import InvalidRequestError
from lake.core.data.deletes.spilled_equality import NEVER, RowKeys, SpilledDeletes, needed_bytes
from lake.core.data.keys.index import NOT_FOUND, KeyIndex

MEMORY_BYTES = 112 * 1024 * 1024
# The maximum memory of an index per key (measured), in addition to three times the keys themselves.
INDEX_BYTES = 40


class EqualityDeletes:
    """The equality deletes of one list of columns and one scope (a partition, or the whole table).

    A row is deleted if a delete with an equal key has a larger sequence number than the row's file. If
    `in_memory`, use `deleted` for single batches; otherwise only `deleted_rows`, for many rows at once.
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
            batches: rows of delete files, only their key columns, always with the same order and types,
                each with the file's data sequence number.
            memory_bytes: the approximate memory limit, both while reading and in use.

        Raises:
            RefusedError: a key column is nested.
            EngineError: there is not enough space for temporary files.
        """
        waiting = _Pending()
        spool: SpilledDeletes | None = None
        try:
            for batch, sequence_number in batches:
                waiting.add(batch, sequence_number)
                if spool is None and waiting.index_bytes > memory_bytes:
                    # Sorting takes more memory than an index, and repeated allocation fragments it.
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
        """Whether `deleted` may be used."""
        return self._spool is None

    def may_delete(self, sequence_number: int) -> bool:
        """Whether rows of files of a data sequence number can be deleted at all."""
        return sequence_number < self._largest

    def deleted(self, keys: pa.RecordBatch, sequence_number: int) -> Mask:
        """Return which rows of a batch are deleted, given the data sequence number of its file.

        Raises:
            InvalidRequestError: the columns have other types than the deletes', or the deletes are on disk.
        """
        if self._spool is not None:
            raise InvalidRequestError(
                "these equality deletes do not fit in memory; use deleted_rows"
            )
        if self._index is None or not self.may_delete(sequence_number):
            return np.zeros(keys.num_rows, np.bool_)
        # check: equality-deletes-of-older-rows
        return self._index.sequences(keys) > sequence_number

    def deleted_rows(self, rows: Iterable[RowKeys]) -> Iterator[tuple[int, Int64s]]:
        """Yield (file, ascending positions) of deleted rows; a file's rows may come in several parts.

        The deletes on disk are read once for each set of rows whose keys fit in memory, so pass the rows of
        many files together.
        """
        if self._spool is not None:
            yield from self._spool.deleted_rows(rows)
            return
        for part in rows:
            found = np.flatnonzero(self.deleted(part.keys, part.sequence_number))
            if len(found):
                yield part.file, found + part.first_position

    def close(self) -> None:
        """Delete temporary files. May be called twice."""
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
class _Pending:
    """Deletes that were read but not indexed."""

    batches: list[tuple[pa.RecordBatch, int]] = field(default_factory=list)
    index_bytes: int = 0
    sort_bytes: int = 0
    largest: int = NEVER

    def add(self, batch: pa.RecordBatch, sequence_number: int) -> None:
        if not batch.num_rows:
            return
        self.batches.append((batch, sequence_number))
        self.index_bytes += 3 * batch.nbytes + INDEX_BYTES * batch.num_rows
        self.sort_bytes += needed_bytes(batch)
        self.largest = max(self.largest, sequence_number)

    def take(self, most_bytes: int | None = None) -> list[tuple[pa.RecordBatch, int]]:
        """Return the last batches that can be sorted in about ``most_bytes``, at least one; by default all."""
        taken: list[tuple[pa.RecordBatch, int]] = []
        remaining = -1 if most_bytes is None else self.sort_bytes - max(most_bytes, 1)
        while self.batches and self.sort_bytes > remaining:
            taken.append(self.batches.pop())
            self.sort_bytes -= needed_bytes(taken[-1][0])
        return taken


class _Index:
    """Deletes in memory."""

    def __init__(self, keys: KeyIndex, ends: Int64s, sequences: Int64s) -> None:
        self._keys = keys
        self._ends = ends
        # An additional entry for rows that match no delete.
        self._sequences = np.append(sequences, NEVER)

    @classmethod
    def of(cls, batches: list[tuple[pa.RecordBatch, int]]) -> _Index | None:
        """Index deletes and remove them from the list; None if there are none."""
        if not batches:
            return None
        # Of equal keys, the index finds the last one: it must have the largest sequence number.
        batches.sort(key=lambda item: item[1])
        sequences = np.array([number for _, number in batches], np.int64)
        ends = np.cumsum([batch.num_rows for batch, _ in batches])
        table = pa.Table.from_batches(
            [_named_by_position(batch) for batch, _ in batches]
        ).combine_chunks()
        # Otherwise the keys would be in memory twice while they are sorted.
        batches.clear()
        return cls(KeyIndex.build(table), ends, sequences)

    def sequences(self, keys: pa.RecordBatch) -> Int64s:
        """Return the largest sequence number of a delete of each key."""
        rows = self._keys.find(keys)
        numbers = np.searchsorted(self._ends, rows, side="right")
        numbers[rows == NOT_FOUND] = len(self._sequences) - 1
        return self._sequences[numbers]


def _named_by_position(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns are named by position: files of one table may use different names."""
    names = [str(position) for position in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(batch.columns, names=names)
