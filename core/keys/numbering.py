"""Numbers for keys that come batch by batch: equal keys have one number, new ones the next.

An open-addressing hash table with linear probing, worked by whole batches: in every round all rows that have
no number yet look at one slot. Where equal hashes are not equal keys, the keys themselves are compared.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.keys.encoding import (
    EncodedKeys,
    Int64s,
    Mask,
    Words,
    encode_keys,
    is_one_word,
    nulls_of,
    one_word_hashes,
    tail_offsets,
)

_FREE = -1
_SMALLEST_TABLE = 1024
# Neighbours fill a table that is fuller.
_FULLEST = 0.5


class KeyDictionary:
    """Gives the same number, from 0 on, to equal keys of all batches."""

    def __init__(self) -> None:
        self._slots = np.full(_SMALLEST_TABLE, _FREE)
        # Nobody can make up keys that all want one slot.
        self._salt = np.uint64(secrets.randbits(64) | 1)
        self._hashes = _Growing(np.zeros(0, np.uint64))
        self._keys: _KnownKeys | None = None
        self._null_number = _FREE
        self._count = 0

    def __len__(self) -> int:
        """Return how many different keys there were."""
        return self._count

    def of(self, keys: pa.RecordBatch) -> Int64s:
        """Return the number of each row's key; all columns are the key's, in every batch of the same types.

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
        # NULL has no hash of its own among those of all values.
        nulls = nulls_of(column)
        numbers = np.empty(len(column), np.int64)
        numbers[~nulls] = self._number(one_word_hashes(column)[~nulls], None)
        if self._null_number == _FREE:
            self._null_number = self._new_numbers(np.zeros(1, np.uint64), None)[0]
        numbers[nulls] = self._null_number
        return numbers

    def _number(self, hashes: Words, keys: EncodedKeys | None) -> Int64s:
        numbers = np.full(len(hashes), _FREE)
        waiting = np.arange(len(hashes))
        last_slot = len(self._slots) - 1
        slots = self._wanted(hashes)
        while len(waiting):
            there = self._slots[slots[waiting]]
            free = waiting[there == _FREE]
            if len(free):
                # Of several rows that want a slot one gets it; the others meet its key in the next look.
                self._slots[slots[free]] = free
                winners = free[self._slots[slots[free]] == free]
                chosen = None if keys is None else keys.take(winners)
                numbers[winners] = self._new_numbers(hashes[winners], chosen)
                self._slots[slots[winners]] = numbers[winners]
                waiting = waiting[numbers[waiting] == _FREE]
                there = self._slots[slots[waiting]]
            same = self._same(hashes, keys, waiting, there)
            numbers[waiting[same]] = there[same]
            waiting = waiting[~same]
            slots[waiting] = (slots[waiting] + 1) & last_slot
        return numbers

    def _wanted(self, hashes: Words) -> Int64s:
        """Return the slot that each key should have."""
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
    """An array that rows are appended to, in steps that grow with it."""

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
    """The keys that have numbers, in the order of these."""

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
        """Compare the keys of some numbers with those at as many places of a batch's."""
        return EncodedKeys(self._words.values, self._tail()).same(numbers, other, rows)

    def _tail(self) -> pa.LargeBinaryArray | None:
        if not self._has_texts:
            return None
        ends, texts = self._ends.values, self._texts.values
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
        return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)
