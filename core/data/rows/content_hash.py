"""A hash of rows that does not depend on their order, nor on how they are divided among files, batches and tasks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C6E756C6C)


class ContentHash:
    """A hash of rows that does not depend on their order: the sum of the rows' hashes, and their number.

    Values are compared by their bits: NULL differs from an empty text, -0.0 from 0.0.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        total = np.full(batch.num_rows, _MIX)
        for column in batch.columns:
            total = _finish(total * _MIX + _hashes(column))
        self.total += int(np.add.reduce(total, dtype=np.uint64))
        self.rows += batch.num_rows

    def text(self) -> str:
        """Return the hash so far."""
        return f"{self.rows}-{self.total % 2**64:016x}"


def hash_together(texts: Iterable[str]) -> str:
    """Return the content hash of all rows from the content hashes of their parts."""
    pairs = [text.split("-") for text in texts]
    whole = ContentHash()
    whole.rows = sum(int(rows) for rows, _ in pairs)
    whole.total = sum(int(total, 16) for _, total in pairs)
    return whole.text()


def hash_all(batches: Iterable[pa.RecordBatch]) -> str:
    """Return the content hash of batches."""
    content = ContentHash()
    for batch in batches:
        content.add(batch)
    return content.text()


def _finish(values: Hashes) -> Hashes:
    """Mix the bits of each value (the finaliser of MurmurHash3)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


def _hashes(column: pa.Array) -> Hashes:
    """Return a number per value."""
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return _hashes(column.storage)
    if pa.types.is_null(type_):
        return np.full(len(column), _NULL)
    if pa.types.is_struct(type_):
        hashed = _struct_hashes(column)
    elif pa.types.is_map(type_):
        entries = column.cast(pa.list_(pa.struct([type_.key_field, type_.item_field])))
        hashed = _list_hashes(entries)
    elif pa.types.is_list(type_):
        hashed = _list_hashes(column)
    elif pa.types.is_string(type_) or pa.types.is_binary(type_):
        hashed = _text_hashes(column)
    else:
        hashed = _fixed_hashes(column)
    if column.null_count:
        hashed = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)
    return hashed


def _struct_hashes(column: pa.StructArray) -> Hashes:
    total = np.full(len(column), _MIX)
    for child in column.flatten():
        total = _finish(total * _MIX + _hashes(child))
    return total


def _list_hashes(column: pa.ListArray) -> Hashes:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return _summed(_hashes(column.flatten()), lengths.astype(np.int64))


def _text_hashes(column: pa.Array) -> Hashes:
    """Hash texts eight bytes at a time."""
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    counts = (lengths + 7) // 8
    position = _positions(counts)
    used = int(offsets[-1]) if len(offsets) else 0
    padded = np.zeros(used + 8, np.uint8)
    if used:
        padded[:used] = np.frombuffer(data, np.uint8, used)
    every_eight = np.ndarray((used + 1,), "<u8", padded.data, strides=(1,))
    words = every_eight[np.repeat(starts, counts) + 8 * position]
    used_bytes = np.minimum(np.repeat(lengths, counts) - 8 * position, 8)
    words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (64 - 8 * used_bytes).astype(np.uint64)
    return _finish(_summed(words, counts) + lengths.astype(np.uint64))


def _summed(values: Hashes, counts: npt.NDArray[np.int64]) -> Hashes:
    """Return one hash per run of values, which depends on their positions and their number."""
    placed = _finish(values ^ _finish(_positions(counts).astype(np.uint64) + _MIX))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    ends = np.cumsum(counts)
    return _finish(sums[ends] - sums[ends - counts] + counts.astype(np.uint64) * _MIX)


def _positions(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each item's position in its run, from 0."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)


def _fixed_hashes(column: pa.Array) -> Hashes:
    """Hash values of a fixed width by their bytes."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    if width == 0 or not len(column):
        return np.zeros(len(column), np.uint64)
    start = column.offset * width
    raw = np.frombuffer(column.buffers()[1], np.uint8)[start : start + len(column) * width]
    words = np.zeros((len(column), -(-width // 8) * 8), np.uint8)
    words[:, :width] = raw.reshape(len(column), width)
    total = np.full(len(column), _MIX)
    for word in words.view("<u8").T:
        total = _finish(total * _MIX + word)
    return total
