"""Encode key rows as 64-bit words, bytes and hashes: two encodings are equal if and only if the keys are.

NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0, as when Iceberg Java compares keys.
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

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.base.errors import RefusedError
from lake.core.spec.types.type_text import type_text

Words = npt.NDArray[np.uint64]

# Intermediate arrays of this many rows fit in the processor's cache.
_BLOCK_ROWS = 32 * 1024
_WORD = 8
# Wider fixed values are treated like text.
_WIDEST_FIXED = 16
# int64 can represent every decimal with this many digits.
_ONE_WORD_DIGITS = 18
_MOST_FLAGS = 64
# Longer texts are rare or slow to read anyway; each is hashed separately.
_LONG_TEXT = 256
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C6E756C6C)
_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """Keys that are equal if and only if their words and their tails are.

    Args:
        words: one row of 64-bit words per key: null flags, fixed-width values, lengths of texts.
        tail: the concatenated texts of each key; None if no column is text.
    """

    words: Words
    tail: pa.LargeBinaryArray | None

    def __len__(self) -> int:
        return len(self.words)

    def hashes(self) -> Words:
        """Return a well-mixed hash per key."""
        total = np.full(len(self), _MIX)
        for column in self.words.T:
            total = mixed(total * _MIX + column)
        if self.tail is not None:
            total = mixed(total * _MIX + _text_hashes(self.tail))
        return total

    def same(self, rows: Int64s, other: EncodedKeys, other_rows: Int64s) -> Mask:
        """Compare the keys at some positions pairwise with those at positions of another object."""
        equal: Mask = (self.words[rows] == other.words[other_rows]).all(axis=1)
        if self.tail is not None and other.tail is not None:
            tails = pc.equal(self.tail.take(pa.array(rows)), other.tail.take(pa.array(other_rows)))
            equal &= tails.to_numpy(zero_copy_only=False)
        return equal

    def take(self, rows: Int64s) -> EncodedKeys:
        """Return the keys at the given positions."""
        tail = None if self.tail is None else self.tail.take(pa.array(rows))
        return EncodedKeys(self.words[rows], tail)

    def bytes_at(self, row: int) -> bytes:
        """Return one key as bytes."""
        head: bytes = self.words[row].tobytes()
        return head if self.tail is None else head + bytes(self.tail[row].as_py())

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.words.nbytes + (0 if self.tail is None else int(self.tail.nbytes))


@dataclass(frozen=True, slots=True)
class ColumnKeys:
    """Keys in their original columns, encoded when they are hashed or compared: the most compact form."""

    columns: pa.RecordBatch

    @classmethod
    def of(cls, keys: pa.Table | pa.RecordBatch) -> Self:
        """Take the key columns.

        Raises:
            RefusedError: a column is nested.
        """
        plain = {
            str(position): plain_column(one_array(keys.column(position)), name)
            for position, name in enumerate(keys.schema.names)
        }
        return cls(pa.RecordBatch.from_pydict(plain))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def hashes(self) -> Words:
        """Return a well-mixed hash per key."""
        found = np.empty(len(self), np.uint64)
        for start in range(0, len(self), _BLOCK_ROWS):
            block = self.columns.slice(start, _BLOCK_ROWS)
            found[start : start + _BLOCK_ROWS] = encode_keys(block).hashes()
        return found

    def same(self, rows: Int64s, other: ColumnKeys, other_rows: Int64s) -> Mask:
        """Compare the keys at some positions pairwise with those at positions of another object."""
        equal = np.empty(len(rows), np.bool_)
        for start in range(0, len(rows), _BLOCK_ROWS):
            end = start + _BLOCK_ROWS
            left, right = self.take(rows[start:end]), other.take(other_rows[start:end])
            every = np.arange(len(left))
            equal[start:end] = encode_keys(left.columns).same(
                every, encode_keys(right.columns), every
            )
        return equal

    def take(self, rows: Int64s) -> ColumnKeys:
        """Return the keys at the given positions."""
        return ColumnKeys(self.columns.take(pa.array(rows)))

    def bytes_at(self, row: int) -> bytes:
        """Return one key as bytes."""
        return encode_keys(self.columns.slice(row, 1)).bytes_at(0)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(self.columns.nbytes)


class Keys(Protocol):
    """Keys that can be compared."""

    def same(self, rows: Int64s, other: Any, other_rows: Int64s) -> Mask:
        """Compare the keys at some positions pairwise with those of another object of the same type."""

    def bytes_at(self, row: int) -> bytes:
        """Return one key as bytes."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""


def concat_keys(parts: Sequence[EncodedKeys]) -> EncodedKeys:
    """Concatenate keys of the same columns."""
    tails = [part.tail for part in parts if part.tail is not None]
    return EncodedKeys(
        np.concatenate([part.words for part in parts]), pa.concat_arrays(tails) if tails else None
    )


def encode_keys(batch: pa.RecordBatch) -> EncodedKeys:
    """Encode the rows of a batch; all of its columns are key columns.

    Raises:
        RefusedError: a column is nested.
    """
    columns = [
        plain_column(column, name) for name, column in zip(batch.schema.names, batch, strict=True)
    ]
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
    """Whether a key is one column with values of at most 64 bits."""
    if len(schema) != 1:
        return False
    kind = _plain_type(schema.field(0).type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _ONE_WORD_DIGITS)
    return not pa.types.is_null(kind) and _is_fixed(kind) and _width(kind) <= _WORD


def one_word_hashes(column: pa.Array) -> Words:
    """Hash a one-word column (see `is_one_word`): different values have different hashes, NULL has any."""
    return mixed(_fixed_words(plain_column(column, ""))[0])


def hash_keys(batch: pa.RecordBatch) -> Words:
    """Return a hash per row that is equal for equal keys, in every process."""
    if not is_one_word(batch.schema):
        return encode_keys(batch).hashes()
    column = batch.column(0)
    hashes = one_word_hashes(column)
    if column.null_count:
        hashes[nulls_of(column)] = _NULL
    return hashes


def partition_of(hashes: Words, count: int) -> Int64s:
    """Return a bucket number below ``count`` per hash, from its lower half: indexes use the upper half."""
    lower = hashes & np.uint64(0xFFFFFFFF)
    return ((lower * np.uint64(count)) >> np.uint64(32)).view(np.int64)


def mixed(values: Words) -> Words:
    """Spread every bit over all bits, one to one (the finaliser of MurmurHash3)."""
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


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    if isinstance(data_type, pa.BaseExtensionType):
        return _plain_type(data_type.storage_type)
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def plain_column(column: pa.Array, name: str) -> pa.Array:
    """Return a column without extension and dictionary types.

    Raises:
        RefusedError: it is nested.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        return plain_column(column.storage, name)
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_nested(column.type):
        raise RefusedError(
            f"column {name} is of type {type_text(column.type)}: only plain columns can be keys"
        )
    return column


def _is_fixed(data_type: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(data_type):
        return bool(0 < data_type.byte_width <= _WIDEST_FIXED)
    return bool(pa.types.is_primitive(data_type) or pa.types.is_decimal128(data_type))


def _width(data_type: pa.DataType) -> int:
    """Return the bytes of a value of a fixed type."""
    return 1 if pa.types.is_boolean(data_type) else int(data_type.bit_width // 8)


def _flags(columns: Sequence[pa.Array], rows: int) -> list[Words]:
    """Return words with one bit per column that is set for NULL."""
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
    """Return the values of a fixed-width column as words, the first part first."""
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
    """Return the memory of a fixed-width column, with ``items`` items per value."""
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
    offset = 0
    while len(active):
        remaining = lengths[active] - offset
        words = every_eight[starts[active] + offset]
        short = remaining < _WORD
        words[short] &= _ALL_ONES >> (64 - 8 * remaining[short]).astype(np.uint64)
        hashes[active] = mixed(hashes[active] * _MIX + words)
        active, offset = active[remaining > _WORD], offset + _WORD
    return hashes


def tail_offsets(texts: pa.LargeBinaryArray) -> Int64s:
    """Return the offsets of texts in their data buffer, including the end of the last one."""
    if not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * _WORD)
