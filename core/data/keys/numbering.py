"""Assign numbers to keys that arrive in batches: equal keys get one number, new keys the next one.

An open-addressing hash table with linear probing, processed in whole batches: in every round, all rows without
a number probe one slot. If equal hashes do not mean equal keys, the keys themselves are compared.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.base.arrow import Int64s, Mask
from lake.core.data.keys.encoding import (
    EncodedKeys,
    Words,
    encode_keys,
    is_one_word,
    nulls_of,
    one_word_hashes,
    tail_offsets,
)

_FREE = -1
_SMALLEST_TABLE = 1024
# Above this load factor, probes become long.
_FULLEST = 0.5


class KeyDictionary:
    """Assigns the same number, starting at 0, to equal keys of all batches."""

    def __init__(self) -> None:
        self._slots = np.full(_SMALLEST_TABLE, _FREE)
        # A random salt: input cannot be crafted so that all keys use one slot.
        self._salt = np.uint64(secrets.randbits(64) | 1)
        self._hashes = _Growing(np.zeros(0, np.uint64))
        self._keys: _KnownKeys | None = None
        self._null_number = _FREE
        self._count = 0

    def __len__(self) -> int:
        """Return the number of distinct keys."""
        return self._count

    def of(self, keys: pa.RecordBatch) -> Int64s:
        """Return the number of each row's key; all columns are key columns, with the same types in every batch.

        Raises:
            RefusedError: a column is nested.
        """
        self._make_room(keys.num_rows)
        if not is_one_word(keys.schema):
            encoded = encode_keys(keys)
            return self._number(encoded.hashes(), encoded)
        column = keys.column(0)
        if not column.null_count:
            return self._number(one_word_hashes(column), None)
        # NULL does not have a hash that is different from those of all values.
        nulls = nulls_of(column)
        numbers = np.empty(len(column), np.int64)
        numbers[~nulls] = self._number(one_word_hashes(column)[~nulls], None)
        if self._null_number == _FREE:
            self._null_number = self._new_numbers(np.zeros(1, np.uint64), None)[0]
        numbers[nulls] = self._null_number
        return numbers

    def _number(self, hashes: Words, keys: EncodedKeys | None) -> Int64s:
        numbers = np.full(len(hashes), _FREE)
        unnumbered = np.arange(len(hashes))
        last_slot = len(self._slots) - 1
        slots = self._wanted(hashes)
        while len(unnumbered):
            occupants = self._slots[slots[unnumbered]]
            free = unnumbered[occupants == _FREE]
            if len(free):
                # Of several rows that probe a free slot, one gets it; the others compare its key in the next round.
                self._slots[slots[free]] = free
                winners = free[self._slots[slots[free]] == free]
                chosen = None if keys is None else keys.take(winners)
                numbers[winners] = self._new_numbers(hashes[winners], chosen)
                self._slots[slots[winners]] = numbers[winners]
                unnumbered = unnumbered[numbers[unnumbered] == _FREE]
                occupants = self._slots[slots[unnumbered]]
            same = self._same(hashes, keys, unnumbered, occupants)
            numbers[unnumbered[same]] = occupants[same]
            unnumbered = unnumbered[~same]
            slots[unnumbered] = (slots[unnumbered] + 1) & last_slot
        return numbers

    def _wanted(self, hashes: Words) -> Int64s:
        """Return the preferred slot of each key."""
        bits = len(self._slots).bit_length() - 1
        return ((hashes * self._salt) >> np.uint64(64 - bits)).view(np.int64)

    def _same(self, hashes: Words, keys: EncodedKeys | None, rows: Int64s, numbers: Int64s) -> Mask:
        same: Mask = self._hashes.values[numbers] == hashes[rows]
        if keys is not None and self._keys is not None:
            asked = np.flatnonzero(same)
            same[asked] = self._keys.same(numbers[asked], keys, rows[asked])
        return same

    def _new_numbers(self, hashes: Words, keys: EncodedKeys | None) -> Int64s:
        numbers = np.arange(self._count, self._count + len(hashes))
        self._count += len(hashes)
        self._hashes.append(hashes)
        if keys is not None:
            self._keys = self._keys or _KnownKeys(keys.take(np.zeros(0, np.int64)))
            self._keys.append(keys)
        return numbers

    def _make_room(self, rows: int) -> None:
        size = len(self._slots)
        while (self._count + rows) > size * _FULLEST:
            size *= 2
        if size == len(self._slots):
            return
        self._slots = np.full(size, _FREE)
        numbers = np.arange(self._count)
        numbers = numbers[numbers != self._null_number]
        slots = self._wanted(self._hashes.values)
        while len(numbers):
            free = numbers[self._slots[slots[numbers]] == _FREE]
            self._slots[slots[free]] = free
            numbers = numbers[self._slots[slots[numbers]] != numbers]
            slots[numbers] = (slots[numbers] + 1) & (size - 1)


class _Growing:
    """An array with amortised appends."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._memory = values
        self.values = values

    def append(self, more: npt.NDArray[Any]) -> None:
        used, needed = len(self.values), len(self.values) + len(more)
        if needed > len(self._memory):
            grown = np.empty((max(needed, 2 * used), *more.shape[1:]), more.dtype)
            grown[:used] = self.values
            self._memory = grown
        self._memory[used:needed] = more
        self.values = self._memory[:needed]


class _KnownKeys:
    """The numbered keys, in the order of their numbers."""

    def __init__(self, none: EncodedKeys) -> None:
        self._words = _Growing(none.words)
        self._has_texts = none.tail is not None
        self._ends = _Growing(np.zeros(1, np.int64))
        self._texts = _Growing(np.zeros(0, np.uint8))

    def append(self, keys: EncodedKeys) -> None:
        self._words.append(keys.words)
        if keys.tail is None or not len(keys):
            return
        offsets = tail_offsets(keys.tail)
        texts = keys.tail.buffers()[2]
        if texts is not None:
            self._texts.append(np.frombuffer(texts, np.uint8)[offsets[0] : offsets[-1]])
        self._ends.append(self._ends.values[-1] + offsets[1:] - offsets[0])

    def same(self, numbers: Int64s, other: EncodedKeys, rows: Int64s) -> Mask:
        """Compare numbered keys pairwise with keys at positions of a batch."""
        return EncodedKeys(self._words.values, self._tail()).same(numbers, other, rows)

    def _tail(self) -> pa.LargeBinaryArray | None:
        if not self._has_texts:
            return None
        ends, texts = self._ends.values, self._texts.values
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
        return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)
