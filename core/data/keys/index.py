"""An exact hash index that finds rows by their keys, over Arrow columns, without a loop over rows.

The keys' hashes are sorted; a directory maps a hash's upper bits to the start of the search. For a key of one
column of at most 64 bits the hash is one to one, so equal hashes mean equal keys; other keys are compared.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.base.arrow import Int64s, Mask
from lake.core.base.errors import InvalidRequestError
from lake.core.data.keys.encoding import (
    ColumnKeys,
    Keys,
    Words,
    is_one_word,
    nulls_of,
    one_word_hashes,
)

NOT_FOUND = -1
# Lookups are made in blocks whose intermediate arrays fit in the processor's cache.
_BLOCK_ROWS = 32 * 1024
_MOST_DIRECTORY_BITS = 26
# Longer searches from the directory's position are rare, or caused on purpose.
_MOST_STEPS = 8


class SortedKeys:
    """Distinct keys in the order of their hashes; finds the position of a key.

    Args:
        hashes: the hashes, ascending.
        keys: the keys; None if equal hashes mean equal keys.
        at: the position in ``keys`` for each hash; None if the keys are in the hashes' order.
        directory: whether to build one, which pays off only if there are more lookups than keys.
    """

    def __init__(
        self,
        hashes: Words,
        keys: Keys | None,
        *,
        at: npt.NDArray[Any] | None = None,
        directory: bool = True,
    ) -> None:
        # A sentinel ends every search; it is not a key, whatever its hash equals.
        self._hashes = np.append(hashes, np.iinfo(np.uint64).max)
        self._end = len(hashes)
        self._keys = keys
        self._at = at
        self._directory = _directory(hashes) if directory else None

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        known: int = self._hashes.nbytes + (self._directory[1].nbytes if self._directory else 0)
        return known + (self._keys.nbytes if self._keys else 0)

    def find(self, hashes: Words, keys: Keys | None) -> Int64s:
        """Return the position of each key; the number of keys if it is missing."""
        positions = self._first_positions(hashes)
        if self._keys is None or keys is None:
            return positions
        asked = np.flatnonzero(positions != self._end)
        while len(asked):
            candidates = positions[asked] if self._at is None else self._at[positions[asked]]
            asked = asked[~keys.same(asked, self._keys, candidates)]
            # A different key may have the same hash.
            positions[asked] += 1
            positions[asked[self._hashes[positions[asked]] != hashes[asked]]] = self._end
            asked = asked[positions[asked] != self._end]
        return positions

    def _first_positions(self, hashes: Words) -> Int64s:
        """Return the first position of each hash."""
        if self._directory is None:
            positions = np.searchsorted(self._hashes, hashes)
            positions[self._hashes[positions] != hashes] = self._end
            return positions
        shift, starts = self._directory
        positions = starts.take((hashes >> shift).view(np.int64), mode="clip").astype(np.int64)
        found = self._hashes.take(positions, mode="clip")
        missing = found != hashes
        walking = np.flatnonzero(found < hashes)
        for _ in range(_MOST_STEPS):
            if not len(walking):
                break
            wanted = hashes[walking]
            positions[walking] = following = positions[walking] + 1
            met = self._hashes[following]
            missing[walking] = met != wanted
            walking = walking[met < wanted]
        if len(walking):
            wanted = hashes[walking]
            positions[walking] = reached = np.searchsorted(self._hashes, wanted)
            missing[walking] = self._hashes[reached] != wanted
        positions[missing] = self._end
        return positions


class KeyIndex:
    """Finds the key row that equals a given row.

    Columns are matched by position and must have the types with which the index was built. Of several key
    rows with one key, the one with the highest rank is found; of equal ranks, the last.
    """

    def __init__(
        self, types: list[pa.DataType], keys: SortedKeys, rows: Int64s, null_row: int
    ) -> None:
        self._types = types
        self._keys = keys
        self._null_row = null_row
        self._rows = np.append(_smallest_dtype(rows), np.int32(NOT_FOUND))

    @classmethod
    def build(cls, keys: pa.Table | pa.RecordBatch, *, rank: Int64s | None = None) -> Self:
        """Index key rows.

        Args:
            keys: one row per key; all columns are key columns; rows may repeat.
            rank: a number per row that decides which of equal rows is found; None for the row number.

        Raises:
            RefusedError: a column is nested.
            InvalidRequestError: there is no column.
        """
        if not keys.num_columns:
            raise InvalidRequestError("a key needs a column")
        batches = [keys] if isinstance(keys, pa.RecordBatch) else keys.to_batches()
        batches = batches or [pa.RecordBatch.from_pylist([], keys.schema)]
        strength = _Precedence(keys.num_rows, rank)
        types = keys.schema.types
        if is_one_word(keys.schema):
            columns = [batch.column(0) for batch in batches]
            return cls(types, *_one_word_entries(columns, strength))
        kept = ColumnKeys.of(keys)
        hashes = kept.hashes()
        order, first = grouped(hashes, kept)
        rows = _smallest_dtype(strength.strongest(order, first))
        # Rows with one key are equal: any of them represents it.
        return cls(types, SortedKeys(hashes[rows], kept, at=rows), rows, NOT_FOUND)

    def __len__(self) -> int:
        """Return the number of distinct keys."""
        return len(self._rows) - 1 + (self._null_row != NOT_FOUND)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._keys.nbytes + int(self._rows.nbytes)

    def rows(self) -> Int64s:
        """Return the numbers of the key rows that can be found, one for each key.

        They are in the order of their hashes; an index of keys in this order is built without sorting.
        """
        found = self._rows[:-1].astype(np.int64)
        return found if self._null_row == NOT_FOUND else np.append(found, self._null_row)

    def find(self, batch: pa.RecordBatch) -> Int64s:
        """Return for each row the number of the equal key row; `NOT_FOUND` if there is none.

        Raises:
            InvalidRequestError: the columns have other types than the keys.
        """
        if batch.schema.types != self._types:
            raise InvalidRequestError(
                f"keys of {batch.schema.types} do not have the types {self._types}"
            )
        one_word = is_one_word(batch.schema)
        found = np.empty(batch.num_rows, np.int64)
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            block = batch.slice(start, _BLOCK_ROWS)
            rows = self._find_value(block.column(0)) if one_word else self._find_key(block)
            found[start : start + _BLOCK_ROWS] = rows
        return found

    def _find_value(self, column: pa.Array) -> npt.NDArray[Any]:
        rows: npt.NDArray[Any] = self._rows[self._keys.find(one_word_hashes(column), None)]
        if column.null_count:
            rows[nulls_of(column)] = self._null_row
        return rows

    def _find_key(self, block: pa.RecordBatch) -> npt.NDArray[Any]:
        probes = ColumnKeys.of(block)
        rows: npt.NDArray[Any] = self._rows[self._keys.find(probes.hashes(), probes)]
        return rows


def _smallest_dtype(rows: Int64s) -> npt.NDArray[Any]:
    """Return row numbers in the smallest sufficient integer type."""
    small = not len(rows) or int(rows.max()) < np.iinfo(np.int32).max
    return rows.astype(np.int32 if small else np.int64)


class _Precedence:
    """The order of precedence among rows with one key."""

    def __init__(self, rows: int, rank: Int64s | None) -> None:
        self._weakest_first = None if rank is None else np.argsort(rank, kind="stable")
        if self._weakest_first is not None:
            self._ranks = np.empty(rows, np.int64)
            self._ranks[self._weakest_first] = np.arange(rows)

    def strongest(self, rows: Int64s, first: Mask) -> Int64s:
        """Return the strongest row of each run of rows; ``first`` marks the start of each run."""
        starts = np.flatnonzero(first)
        if len(starts) == len(rows):
            return rows
        if self._weakest_first is None:
            best: Int64s = np.maximum.reduceat(rows, starts)
            return best
        return self._weakest_first[np.maximum.reduceat(self._ranks[rows], starts)]


def _one_word_entries(
    columns: list[pa.Array], strength: _Precedence
) -> tuple[SortedKeys, Int64s, int]:
    """Return the distinct values, the row of each, and the row of NULL."""
    hashes = np.concatenate([one_word_hashes(column) for column in columns])
    null_row, rows = NOT_FOUND, None
    if any(column.null_count for column in columns):
        nulls = np.concatenate([nulls_of(column) for column in columns])
        of_null, rows = np.flatnonzero(nulls), np.flatnonzero(~nulls)
        null_row = int(strength.strongest(of_null, np.arange(len(of_null)) == 0)[0])
        hashes = hashes[rows]
    order, first = grouped(hashes, None)
    found = order if rows is None else rows[order]
    return SortedKeys(hashes[order[first]], None), strength.strongest(found, first), null_row


def grouped(hashes: Words, keys: Keys | None) -> tuple[Int64s, Mask]:
    """Return rows ordered by hash with equal keys adjacent, and where each new key begins in that order.

    Args:
        hashes: the hash of each row's key.
        keys: the key of each row; None if equal hashes mean equal keys.
    """
    if len(hashes) and (hashes[1:] > hashes[:-1]).all():
        return np.arange(len(hashes)), np.ones(len(hashes), np.bool_)
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


def _directory(hashes: Words) -> tuple[np.uint64, npt.NDArray[Any]]:
    """Return the shift that reduces a hash to a directory slot, and the position where each slot begins."""
    bits = min((3 * len(hashes) // 2 + 1).bit_length(), _MOST_DIRECTORY_BITS)
    shift = np.uint64(64 - bits)
    small = len(hashes) < np.iinfo(np.int32).max
    starts = np.empty(1 << bits, np.int32 if small else np.int64)
    for first in range(0, len(starts), _BLOCK_ROWS):
        block = np.arange(first, min(first + _BLOCK_ROWS, len(starts)), dtype=np.uint64)
        starts[first : first + _BLOCK_ROWS] = np.searchsorted(hashes, block << shift)
    return shift, starts
