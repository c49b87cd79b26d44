"""Find rows by their keys: an exact hash index over Arrow columns, built and probed without a loop over rows.

The keys' hashes lie sorted; a directory tells by a hash's upper bits where to begin. Of a key of one column
of at most 64 bits the hash is one to one, so equal hashes are equal keys; other keys are compared.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.deletes.key_encoding import (
    EncodedKeys,
    Int64s,
    Mask,
    Words,
    concat_keys,
    encode_keys,
    is_one_word,
    nulls_of,
    one_word_hashes,
)
from lake.core.errors import InvalidRequestError

NOT_FOUND = -1
_Numbers = npt.NDArray[Any]
# Probes are made in blocks whose intermediate arrays stay in the processor's cache.
_BLOCK_ROWS = 32 * 1024
_MOST_DIRECTORY_BITS = 26
# Longer walks from where the directory points are rare, or somebody's design.
_MOST_STEPS = 8


class KeyIndex:
    """Finds the row of a set of keys that equals a given one.

    Columns are matched by position and must have the types of those that the index was built of. Among key
    rows of one key the one of the highest rank is found, of equal ranks the last.
    """

    def __init__(
        self, types: list[pa.DataType], hashes: Words, rows: Int64s, null_row: int
    ) -> None:
        self._types = types
        self._null_row = null_row
        self._size = len(rows)
        small = len(rows) == 0 or int(rows.max()) < np.iinfo(np.int32).max
        # A last entry ends every walk; whatever equals it is not found.
        self._hashes = np.append(hashes, np.iinfo(np.uint64).max)
        self._rows = np.append(rows, NOT_FOUND).astype(np.int32 if small else np.int64)
        self._shift, self._directory = _directory(hashes)
        self._keys: EncodedKeys | None = None

    @classmethod
    def build(cls, keys: pa.Table | pa.RecordBatch, *, rank: Int64s | None = None) -> Self:
        """Index key rows.

        Args:
            keys: one row per key, all of whose columns are the key's; rows may repeat.
            rank: a number per row that decides which of equal rows is found; None for the row's own number.

        Raises:
            RefusedError: a column is nested.
            InvalidRequestError: there is no column.
        """
        if not keys.num_columns:
            raise InvalidRequestError("a key needs a column")
        batches = [keys] if isinstance(keys, pa.RecordBatch) else keys.to_batches()
        batches = batches or [pa.RecordBatch.from_pylist([], keys.schema)]
        strength = _Strength(keys.num_rows, rank)
        types = keys.schema.types
        if is_one_word(keys.schema):
            return cls(types, *_one_word_entries([batch.column(0) for batch in batches], strength))
        encoded = concat_keys([encode_keys(batch) for batch in batches])
        hashes = encoded.hashes()
        order, first = _grouped(hashes, encoded)
        index = cls(types, hashes[order[first]], strength.strongest(order, first), NOT_FOUND)
        index._keys = encoded
        return index

    def __len__(self) -> int:
        """Return how many different keys there are."""
        return self._size + (self._null_row != NOT_FOUND)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        known = self._hashes.nbytes + self._rows.nbytes + self._directory.nbytes
        return known + (self._keys.nbytes if self._keys else 0)

    def rows(self) -> Int64s:
        """Return the numbers of the key rows that can be found, ascending: one for each key."""
        found = self._rows[:-1].astype(np.int64)
        if self._null_row != NOT_FOUND:
            found = np.append(found, self._null_row)
        return np.sort(found)

    def find(self, batch: pa.RecordBatch) -> Int64s:
        """Return for each row the number of the key row that equals it, `NOT_FOUND` if none does.

        Raises:
            InvalidRequestError: the columns have other types than the keys.
        """
        if batch.schema.types != self._types:
            raise InvalidRequestError(f"keys of {batch.schema.types} are none of {self._types}")
        found = np.empty(batch.num_rows, np.int64)
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            block = batch.slice(start, _BLOCK_ROWS)
            found[start : start + _BLOCK_ROWS] = self._find(block)
        return found

    def _find(self, block: pa.RecordBatch) -> _Numbers:
        if self._keys is not None:
            probes = encode_keys(block)
            return self._compared(self._keys, probes)
        column = block.column(0)
        rows = self._rows[self._places(one_word_hashes(column))]
        if column.null_count:
            rows[nulls_of(column)] = self._null_row
        return rows

    def _places(self, hashes: Words) -> Int64s:
        """Return the place of each hash, that of the last entry where it is missing."""
        places = self._starts(hashes)
        found = self._hashes.take(places, mode="clip")
        ends = found != hashes
        walking = np.flatnonzero(found < hashes)
        for _ in range(_MOST_STEPS):
            if not len(walking):
                break
            wanted = hashes[walking]
            places[walking] = following = places[walking] + 1
            met = self._hashes[following]
            ends[walking] = met != wanted
            walking = walking[met < wanted]
        if len(walking):
            wanted = hashes[walking]
            places[walking] = reached = np.searchsorted(self._hashes, wanted)
            ends[walking] = self._hashes[reached] != wanted
        places[ends] = len(self._hashes) - 1
        return places

    def _starts(self, hashes: Words) -> Int64s:
        buckets = (hashes >> self._shift).view(np.int64)
        return self._directory.take(buckets, mode="clip").astype(np.int64)

    def _compared(self, keys: EncodedKeys, probes: EncodedKeys) -> _Numbers:
        """Find probes whose hashes may be those of other keys too."""
        hashes = probes.hashes()
        places = self._places(hashes)
        rows = np.full(len(probes), NOT_FOUND, np.int64)
        asked = np.flatnonzero(self._rows[places] != NOT_FOUND)
        while len(asked):
            candidates = self._rows[places[asked]].astype(np.int64)
            equal = probes.same(asked, keys, candidates)
            rows[asked[equal]] = candidates[equal]
            asked = asked[~equal]
            places[asked] += 1
            more = self._hashes[places[asked]] == hashes[asked]
            more &= self._rows[places[asked]] != NOT_FOUND
            asked = asked[more]
        return rows


class _Strength:
    """Which of several rows wins."""

    def __init__(self, rows: int, rank: Int64s | None) -> None:
        self._weakest_first = None if rank is None else np.argsort(rank, kind="stable")
        if self._weakest_first is not None:
            self._places = np.empty(rows, np.int64)
            self._places[self._weakest_first] = np.arange(rows)

    def strongest(self, rows: Int64s, first: Mask) -> Int64s:
        """Return the strongest row of each run of rows; ``first`` marks where runs begin."""
        starts = np.flatnonzero(first)
        if len(starts) == len(rows):
            return rows
        if self._weakest_first is None:
            best: Int64s = np.maximum.reduceat(rows, starts)
            return best
        return self._weakest_first[np.maximum.reduceat(self._places[rows], starts)]


def _one_word_entries(columns: list[pa.Array], strength: _Strength) -> tuple[Words, Int64s, int]:
    """Return the different hashes in order, the row of each, and the row of NULL."""
    hashes = np.concatenate([one_word_hashes(column) for column in columns])
    null_row, rows = NOT_FOUND, None
    if any(column.null_count for column in columns):
        nulls = np.concatenate([nulls_of(column) for column in columns])
        of_null, rows = np.flatnonzero(nulls), np.flatnonzero(~nulls)
        null_row = int(strength.strongest(of_null, np.arange(len(of_null)) == 0)[0])
        hashes = hashes[rows]
    order, first = _grouped(hashes, None)
    found = order if rows is None else rows[order]
    return hashes[order[first]], strength.strongest(found, first), null_row


def _grouped(hashes: Words, keys: EncodedKeys | None) -> tuple[Int64s, Mask]:
    """Return rows in an order that brings equal keys together by hash, and where another key begins."""
    order = np.argsort(hashes)
    in_order = hashes[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = in_order[1:] != in_order[:-1]
    if keys is None:
        return order, first
    again = np.flatnonzero(~first)
    equal = keys.same(order[again - 1], keys, order[again])
    if not equal.all():
        runs = np.cumsum(first)
        mixed_up = np.flatnonzero(np.isin(runs, runs[again[~equal]]))
        rows = order[mixed_up].tolist()
        rows.sort(key=lambda row: (hashes[row], keys.bytes_at(row)))
        order[mixed_up] = rows
        first[again] = ~keys.same(order[again - 1], keys, order[again])
    return order, first


def _directory(hashes: Words) -> tuple[np.uint64, _Numbers]:
    """Return by how many bits to shift a hash, and for each number of the rest where its hashes begin."""
    bits = min(max(len(hashes), 1).bit_length() + 1, _MOST_DIRECTORY_BITS)
    shift = np.uint64(64 - bits)
    counts = np.bincount((hashes >> shift).view(np.int64), minlength=1 << bits)
    small = len(hashes) < np.iinfo(np.int32).max
    ends = np.cumsum(counts, dtype=np.int32 if small else np.int64)
    return shift, ends - counts.astype(ends.dtype)
