"""Equality deletes that do not fit in memory: sorted by their keys' hashes in temporary files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Int64s, Mask
from lake.core.data.keys.encoding import (
    EncodedKeys,
    Words,
    concat_keys,
    encode_keys,
    is_one_word,
    nulls_of,
    one_word_hashes,
)
from lake.core.data.keys.index import SortedKeys
from lake.core.data.keys.sorted_runs import (
    KeyEntries,
    KeySpool,
    Ranges,
    Run,
    concat_entries,
    merged,
    range_starts,
)

# Lower than the sequence number of any delete.
NEVER = -1
# The maximum memory of indexing or looking up a key (measured), in addition to three times the keys.
_ONE_WORD_BYTES = 40
_OTHER_BYTES = 150
_LARGEST_PART = 8 * 1024 * 1024


class RowKeys(NamedTuple):
    """The keys of consecutive rows in a file.

    Args:
        file: a number that identifies the file.
        first_position: the position of the first row.
        sequence_number: the file's data sequence number.
        keys: the key columns, in the order and with the types of the deletes' columns.
    """

    file: int
    first_position: int
    sequence_number: int
    keys: pa.RecordBatch


def needed_bytes(batch: pa.RecordBatch) -> int:
    """Return the approximate memory for indexing a batch of keys, or for looking them up."""
    each = _ONE_WORD_BYTES if is_one_word(batch.schema) else _OTHER_BYTES
    return int(3 * batch.nbytes + each * batch.num_rows)


class SpilledDeletes:
    """Deletes on disk: add all of them, finish, then look up rows; always close it."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._part_bytes = min(memory_bytes // 16, _LARGEST_PART)
        self._spool = KeySpool()
        self._runs: list[tuple[Run, Ranges]] = []
        self._parts: list[Run] = []
        self._null_sequence = NEVER

    def add(self, batches: list[tuple[pa.RecordBatch, int]]) -> None:
        """Sort deletes, which must fit in memory, and write them."""
        entries = []
        while batches:
            entries.append(self._entries(*batches.pop()))
        if any(len(part) for part in entries):
            whole = concat_entries(entries)
            entries.clear()
            run = whole.sorted()
            self._runs.append((self._spool.add(run), range_starts(run.hashes)))

    def _entries(self, batch: pa.RecordBatch, sequence_number: int) -> KeyEntries:
        hashed = _Hashed.of(batch)
        if hashed.nulls is not None:
            self._null_sequence = max(self._null_sequence, sequence_number)
            hashed = _Hashed(hashed.hashes[~hashed.nulls], None, None)
        sequences = np.full(len(hashed.hashes), sequence_number, np.int64)
        return KeyEntries(hashed.hashes, sequences, hashed.keys)

    def finish(self) -> None:
        """Merge all deletes into one order."""
        whole = KeySpool()
        try:
            self._parts = [
                whole.add(part) for part in merged(self._spool, self._runs, self._part_bytes)
            ]
        except BaseException:
            whole.close()
            raise
        self._spool.close()
        self._spool, self._runs = whole, []

    def deleted_rows(self, rows: Iterable[RowKeys]) -> Iterator[tuple[int, Int64s]]:
        """Yield (file, ascending positions) of deleted rows, in the order of the rows."""
        chunk = _Chunk()
        for part in rows:
            chunk.add(part)
            if chunk.needed_bytes > self._memory_bytes // 2:
                yield from chunk.deleted(self._largest_sequences(chunk))
                chunk = _Chunk()
        yield from chunk.deleted(self._largest_sequences(chunk))

    def _largest_sequences(self, chunk: _Chunk) -> Int64s:
        """Return for each row of a chunk the largest sequence number of the deletes of its key."""
        found = np.full(chunk.rows, NEVER, np.int64)
        if not chunk.rows:
            return found
        hashes, keys = chunk.hashes(), chunk.keys()
        order = np.argsort(hashes)
        in_order = hashes[order]
        for part in self._parts:
            first = np.searchsorted(in_order, part.first_hash)
            last = np.searchsorted(in_order, part.last_hash, side="right")
            if first == last:
                continue
            entries = self._spool.read(part)
            asked = order[first:last]
            # Ascending hashes are found fast enough without a directory.
            positions = SortedKeys(entries.hashes, entries.keys, directory=False).find(
                in_order[first:last], None if keys is None else keys.take(asked)
            )
            found[asked] = np.append(entries.sequences, NEVER)[positions]
        found[chunk.nulls()] = self._null_sequence
        return found

    def close(self) -> None:
        """Free the disk space. May be called twice."""
        self._spool.close()


class _Hashed(NamedTuple):
    """A batch's keys: their hashes; the keys if hashes are not unique; the NULLs if they are."""

    hashes: Words
    keys: EncodedKeys | None
    nulls: Mask | None

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Hashed:
        if not is_one_word(batch.schema):
            keys = encode_keys(batch)
            return cls(keys.hashes(), keys, None)
        column = batch.column(0)
        return cls(one_word_hashes(column), None, nulls_of(column) if column.null_count else None)


@dataclass(slots=True)
class _Chunk:
    """Rows that are looked up together."""

    rows: int = 0
    needed_bytes: int = 0
    _parts: list[tuple[RowKeys, _Hashed]] = field(default_factory=list)

    def add(self, rows: RowKeys) -> None:
        count = rows.keys.num_rows
        if not count:
            return
        self.rows += count
        self.needed_bytes += needed_bytes(rows.keys)
        # Only the rows' file and position are kept here, not their columns.
        self._parts.append((rows._replace(keys=rows.keys.slice(0, 0)), _Hashed.of(rows.keys)))

    def hashes(self) -> Words:
        return np.concatenate([hashed.hashes for _, hashed in self._parts])

    def keys(self) -> EncodedKeys | None:
        parts = [hashed.keys for _, hashed in self._parts if hashed.keys is not None]
        return concat_keys(parts) if parts else None

    def nulls(self) -> Int64s:
        """Return the rows whose key is NULL, if the hashes do not represent NULL."""
        found, start = [], 0
        for _, hashed in self._parts:
            if hashed.nulls is not None:
                found.append(np.flatnonzero(hashed.nulls) + start)
            start += len(hashed.hashes)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def deleted(self, sequences: Int64s) -> Iterator[tuple[int, Int64s]]:
        """Yield the rows that deletes with the given sequence numbers delete."""
        start = 0
        for rows, hashed in self._parts:
            end = start + len(hashed.hashes)
            positions = np.flatnonzero(sequences[start:end] > rows.sequence_number)
            if len(positions):
                yield rows.file, positions + rows.first_position
            start = end
