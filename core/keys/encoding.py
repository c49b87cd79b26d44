"""Key rows as 64-bit words, bytes and hashes: two rows have the same encoding iff their keys are equal.

NULL equals NULL, any NaN any other, and -0.0 differs from 0.0, as Iceberg Java compares keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.arrow import one_array
from lake.core.errors import RefusedError

Words = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Intermediate arrays of so many rows stay in the processor's cache.
_BLOCK_ROWS = 32 * 1024
_WORD = 8
# Wider fixed values are handled as texts are.
_WIDEST_FIXED = 16
# An int64 holds every decimal of so many digits.
_ONE_WORD_DIGITS = 18
_MOST_FLAGS = 64
# Texts beyond this are few or slow to read anyway; each is hashed by itself.
_LONG_TEXT = 256
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C6E756C6C)
_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """Keys that are equal iff their words and their tails are.

    Args:
        words: one row of 64-bit words per key: what is NULL, the values of fixed width, texts' lengths.
        tail: the texts of each key, one behind the other; None if no column has texts.
    """

    words: Words
    tail: pa.LargeBinaryArray | None

    def __len__(self) -> int:
        return len(self.words)

    def hashes(self) -> Words:
        """Return a well mixed number per key."""
        total = np.full(len(self), _MIX)
        for column in self.words.T:
            total = mixed(total * _MIX + column)
        if self.tail is not None:
            total = mixed(total * _MIX + _text_hashes(self.tail))
        return total

    def same(self, mine: Int64s, other: EncodedKeys, theirs: Int64s) -> Mask:
        """Compare the keys at some places with those at as many places of another."""
        equal: Mask = (self.words[mine] == other.words[theirs]).all(axis=1)
        if self.tail is not None and other.tail is not None:
            tails = pc.equal(self.tail.take(pa.array(mine)), other.tail.take(pa.array(theirs)))
            equal &= tails.to_numpy(zero_copy_only=False)
        return equal

    def take(self, places: Int64s) -> EncodedKeys:
        """Return the keys at some places."""
        tail = None if self.tail is None else self.tail.take(pa.array(places))
        return EncodedKeys(self.words[places], tail)

    def bytes_at(self, place: int) -> bytes:
        """Return one key as bytes."""
        head: bytes = self.words[place].tobytes()
        return head if self.tail is None else head + bytes(self.tail[place].as_py())

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.words.nbytes + (0 if self.tail is None else int(self.tail.nbytes))


@dataclass(frozen=True, slots=True)
class ColumnKeys:
    """Keys as the columns they came in, encoded where they are hashed or compared: the smallest form to keep."""

    columns: pa.RecordBatch

    @classmethod
    def of(cls, keys: pa.Table | pa.RecordBatch) -> Self:
        """Take the columns of keys.

        Raises:
            RefusedError: a column is nested.
        """
        plain = {
            str(place): _plain(one_array(keys.column(place)), name)
            for place, name in enumerate(keys.schema.names)
        }
        return cls(pa.RecordBatch.from_pydict(plain))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def hashes(self) -> Words:
        """Return a well mixed number per key."""
        found = np.empty(len(self), np.uint64)
        for start in range(0, len(self), _BLOCK_ROWS):
            block = self.columns.slice(start, _BLOCK_ROWS)
            found[start : start + _BLOCK_ROWS] = encode_keys(block).hashes()
        return found

    def same(self, mine: Int64s, other: ColumnKeys, theirs: Int64s) -> Mask:
        """Compare the keys at some places with those at as many places of another."""
        equal = np.empty(len(mine), np.bool_)
        for start in range(0, len(mine), _BLOCK_ROWS):
            end = start + _BLOCK_ROWS
            left, right = self.take(mine[start:end]), other.take(theirs[start:end])
            every = np.arange(len(left))
            equal[start:end] = encode_keys(left.columns).same(
                every, encode_keys(right.columns), every
            )
        return equal

    def take(self, places: Int64s) -> ColumnKeys:
        """Return the keys at some places."""
        return ColumnKeys(self.columns.take(pa.array(places)))

    def bytes_at(self, place: int) -> bytes:
        """Return one key as bytes."""
        return encode_keys(self.columns.slice(place, 1)).bytes_at(0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.columns.nbytes)


class Keys(Protocol):
    """Keys that can be compared."""

    def same(self, mine: Int64s, other: Any, theirs: Int64s) -> Mask:
        """Compare the keys at some places with those at as many places of another of the same kind."""

    def bytes_at(self, place: int) -> bytes:
        """Return one key as bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""


def concat_keys(parts: Sequence[EncodedKeys]) -> EncodedKeys:
    """Put keys of the same columns together."""
    tails = [part.tail for part in parts if part.tail is not None]
    return EncodedKeys(
        np.concatenate([part.words for part in parts]), pa.concat_arrays(tails) if tails else None
    )


def encode_keys(batch: pa.RecordBatch) -> EncodedKeys:
    """Encode the rows of a batch, all of whose columns are the key's.

    Raises:
        RefusedError: a column is nested.
    """
    columns = [_plain(column, name) for name, column in zip(batch.schema.names, batch, strict=True)]
    words = _flags(columns, batch.num_rows)
    texts = []
    for column in columns:
        if pa.types.is_null(column.type):
            continue
        if _is_fixed(column.type):
            words += [_without_nulls(found, column) for found in _fixed_words(column)]
        else:
            text = pc.fill_null(column.cast(pa.large_binary()), b"")
            words.append(pc.binary_length(text).to_numpy(zero_copy_only=False).view(np.uint64))
            texts.append(text)
    tail = texts[0] if texts else None
    if len(texts) > 1:
        tail = pc.binary_join_element_wise(*texts, pa.scalar(b"", pa.large_binary()))
    return EncodedKeys(np.stack(words, axis=1), tail)


def is_one_word(schema: pa.Schema) -> bool:
    """Whether a key is one column whose values are at most 64 bits each."""
    if len(schema) != 1:
        return False
    kind = _plain_type(schema.field(0).type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _ONE_WORD_DIGITS)
    return not pa.types.is_null(kind) and _is_fixed(kind) and _width(kind) <= _WORD


def one_word_hashes(column: pa.Array) -> Words:
    """Hash a column of which `is_one_word`: different values never have one hash; NULLs have any."""
    return mixed(_fixed_words(_plain(column, ""))[0])


def hash_keys(batch: pa.RecordBatch) -> Words:
    """Return a hash per row that is the same for equal keys, in every process."""
    if not is_one_word(batch.schema):
        return encode_keys(batch).hashes()
    column = batch.column(0)
    hashes = one_word_hashes(column)
    if column.null_count:
        hashes[nulls_of(column)] = _NULL
    return hashes


def partition_of(hashes: Words, count: int) -> Int64s:
    """Return a number below ``count`` per hash, by its lower half: indexes use the upper."""
    lower = hashes & np.uint64(0xFFFFFFFF)
    return ((lower * np.uint64(count)) >> np.uint64(32)).view(np.int64)


def mixed(values: Words) -> Words:
    """Spread every bit over all, one to one (the finaliser of MurmurHash3)."""
    values = values ^ (values >> np.uint64(33))
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def nulls_of(column: pa.Array) -> Mask:
    """Return where a column is NULL."""
    mask: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return mask


# Columns


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain(column: pa.Array, name: str) -> pa.Array:
    """Return a column without what only wraps its values.

    Raises:
        RefusedError: it is nested.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        return _plain(column.storage, name)
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_nested(column.type):
        raise RefusedError(f"column {name} is {column.type}: only plain columns can be keys")
    return column


def _is_fixed(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(kind):
        return bool(0 < kind.byte_width <= _WIDEST_FIXED)
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal128(kind))


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value of a fixed type."""
    return 1 if pa.types.is_boolean(kind) else int(kind.bit_width // 8)


def _flags(columns: Sequence[pa.Array], rows: int) -> list[Words]:
    """Return words that tell by a bit per column what is NULL."""
    words = []
    for start in range(0, max(len(columns), 1), _MOST_FLAGS):
        word = np.zeros(rows, np.uint64)
        for bit, column in enumerate(columns[start : start + _MOST_FLAGS]):
            if column.null_count:
                word |= nulls_of(column).astype(np.uint64) << np.uint64(bit)
        words.append(word)
    return words


def _without_nulls(values: Words, column: pa.Array) -> Words:
    return np.where(nulls_of(column), np.uint64(0), values) if column.null_count else values


def _fixed_words(column: pa.Array) -> list[Words]:
    """Return the values of a column of fixed width as words, the first part first."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    if pa.types.is_floating(kind):
        return [_float_words(column)]
    width = _width(kind)
    if width in (1, 2, 4, _WORD):
        return [_values(column, f"<u{width}").astype(np.uint64)]
    raw = np.zeros((len(column), -(-width // _WORD) * _WORD), np.uint8)
    raw[:, :width] = _values(column, "u1", width).reshape(len(column), width)
    words = list(raw.view("<u8").T)
    if pa.types.is_decimal(kind) and kind.precision <= _ONE_WORD_DIGITS:
        return words[:1]
    return words


def _float_words(column: pa.Array) -> Words:
    width = _width(column.type)
    floats = _values(column, f"<f{width}")
    words = floats.view(f"<u{width}").astype(np.uint64)
    words[np.isnan(floats)] = np.array(np.nan, f"<f{width}").view(f"<u{width}")
    return words


def _values(column: pa.Array, kind: str, items: int = 1) -> npt.NDArray[Any]:
    """Return the memory of a column of fixed width, so many items a value."""
    dtype = np.dtype(kind)
    if not len(column):
        return np.zeros(0, dtype)
    start = column.offset * items * dtype.itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column) * items, start)


# Texts


def _text_hashes(texts: pa.LargeBinaryArray) -> Words:
    """Hash texts without NULLs, eight bytes at a time."""
    hashes = np.full(len(texts), _MIX)
    if not len(texts):
        return hashes
    offsets = tail_offsets(texts)
    start, used = int(offsets[0]), int(offsets[-1] - offsets[0])
    padded = np.zeros(used + _WORD, np.uint8)
    if used:
        padded[:used] = np.frombuffer(texts.buffers()[2], np.uint8, used, start)
    starts, lengths = offsets[:-1] - start, np.diff(offsets)
    every_eight = np.ndarray((used + 1,), "<u8", padded.data, strides=(1,))
    for row in np.flatnonzero(lengths > _LONG_TEXT):
        text = padded[starts[row] : starts[row] + lengths[row]]
        hashes[row] = int.from_bytes(
            hashlib.blake2b(text.data, digest_size=_WORD).digest(), "little"
        )
    active = np.flatnonzero((lengths > 0) & (lengths <= _LONG_TEXT))
    place = 0
    while len(active):
        left = lengths[active] - place
        words = every_eight[starts[active] + place]
        short = left < _WORD
        words[short] &= _ALL_ONES >> (64 - 8 * left[short]).astype(np.uint64)
        hashes[active] = mixed(hashes[active] * _MIX + words)
        active, place = active[left > _WORD], place + _WORD
    return hashes


def tail_offsets(texts: pa.LargeBinaryArray) -> Int64s:
    """Return where in their memory texts begin, and where the last one ends."""
    if not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * _WORD)
