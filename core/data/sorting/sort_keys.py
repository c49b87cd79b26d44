"""Encode a row's sort order as bytes: two keys compare, byte by byte, as their rows do.

Each field is a null byte followed by its value: numbers are big-endian with the sign bit flipped, texts end
with a terminator that no text contains. Descending fields are inverted. A Z-order interleaves the bits of its
columns, and a Hilbert order those of the place along the curve.
Source: https://iceberg.apache.org/spec/#sorting (the order of floats, of NULL, of fixed and uuid); Iceberg's
ZOrderByteUtils.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform, VoidTransform

from lake.core.base.arrow import Bytes
from lake.core.base.plain import Codec, PlainData
from lake.core.data.sorting.hilbert import along_curve
from lake.core.data.sorting.key_bytes import prefixes
from lake.core.spec.types.transforms import source_column, transformed

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortField
else:
    SortField = Any


def _sort_field(plain: Mapping[str, Any]) -> SortField:
    from pyiceberg.table.sorting import SortField  # noqa: PLC0415 - door: slow, only for sorted rows

    return SortField.model_validate(plain)


_PlainSortField = Annotated[
    SortField, Codec(lambda field: field.model_dump(mode="json", by_alias=True), _sort_field)
]
TEXT_BYTES = 8
MOST_BYTES = 2**31 - 1
_WORD = 8
_SIGN = 0x80
# Bits are expanded to bytes for interleaving: a small number of rows at a time limits the memory.
_BLOCK_ROWS = 16 * 1024
_END = b"\x00\x00"
_ONE_WORD_DIGITS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder(PlainData):
    """The order of rows: by fields, and among equal rows along a curve.

    Args:
        fields: each with a column's id, a transform, a direction and the null order.
        curve: ids of the curve's columns.
        is_hilbert: whether it is a Hilbert curve; otherwise it is a Z-order.
        text_bytes: the number of bytes of a text that the curve uses.
        most_bytes: the maximum length of a place along the curve.
    """

    fields: tuple[_PlainSortField, ...] = ()
    curve: tuple[int, ...] = ()
    is_hilbert: bool = False
    text_bytes: int = TEXT_BYTES
    most_bytes: int = MOST_BYTES

    @property
    def column_ids(self) -> list[int]:
        """The ids of the columns in the keys."""
        return [*(item.source_id for item in self.fields), *self.curve]

    def keys(self, batch: pa.RecordBatch, schema: Schema) -> pa.BinaryArray:
        """Return each row's key."""
        parts: list[Bytes | pa.BinaryArray] = []
        for item in self.fields:
            if not isinstance(item.transform, VoidTransform):
                values = transformed(batch, schema, item.source_id, item.transform)
                parts += _field_parts(values, item)
        if self.curve:
            columns = [source_column(batch, schema, column) for column in self.curve]
            places = [self._curve_bytes(column) for column in columns]
            if self.is_hilbert:
                places = along_curve(places, self.most_bytes)
            parts.append(self._interleaved(places))
        return _joined(parts, batch.num_rows)

    def _curve_bytes(self, column: pa.Array) -> Bytes:
        if _is_text(column.type):
            texts = pc.fill_null(column.cast(pa.binary()), b"")
            return prefixes(texts, self.text_bytes)
        return _without_nulls(_wide_bytes(column), column)

    def _interleaved(self, columns: Sequence[Bytes]) -> Bytes:
        """Return the interleaved bits of the columns; a column whose bits are used up is skipped."""
        rows = len(columns[0])
        width = min(sum(column.shape[1] for column in columns), self.most_bytes)
        bits = [
            (bit, number)
            for number, column in enumerate(columns)
            for bit in range(8 * column.shape[1])
        ]
        order = sorted(bits)[: 8 * width]
        found = np.empty((rows, width), np.uint8)
        for start in range(0, rows, _BLOCK_ROWS):
            end = start + _BLOCK_ROWS
            block = [np.unpackbits(column[start:end], axis=1) for column in columns]
            turns = np.stack([block[number][:, bit] for bit, number in order], axis=1)
            found[start:end] = np.packbits(turns, axis=1)
        return found


def described_order(order: RowOrder | None, schema: Schema) -> list[str]:
    """Return an order's terms in readable form."""
    if order is None:
        return []
    columns = [schema.find_column_name(column) for column in order.curve]
    name = "hilbert" if order.is_hilbert else "zorder"
    curve = [f"{name}({', '.join(str(column) for column in columns)})"] if columns else []
    return [*(_term(item, schema) for item in order.fields), *curve]


def _term(item: SortField, schema: Schema) -> str:
    column = schema.find_column_name(item.source_id)
    if not isinstance(item.transform, IdentityTransform):
        column = f"{item.transform}({column})"
    return f"{column} {item.direction} {item.null_order}".lower()


def _field_parts(values: pa.Array, item: SortField) -> list[Bytes | pa.BinaryArray]:
    """Return a field's part of the key: the null byte and the value."""
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    last = item.null_order.value == "nulls-last"
    flags = (nulls if last else ~nulls).astype(np.uint8).reshape(-1, 1)
    descends = item.direction.value == "desc"
    if pa.types.is_null(values.type):
        return [flags]
    if _is_text(values.type):
        return [flags, _text(values, descends=descends)]
    found = _number_bytes(values)
    return [flags, _without_nulls(~found if descends else found, values)]


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))


def _text(values: pa.Array, *, descends: bool) -> pa.BinaryArray:
    """Return texts with a terminator that sorts before any continuation: a zero in a text is followed by 255."""
    texts = pc.fill_null(values.cast(pa.binary()), b"")
    if pc.any(pc.match_substring(texts, b"\x00"), min_count=0).as_py():
        texts = pc.replace_substring(texts, pattern=b"\x00", replacement=b"\x00\xff")
    ended = pc.binary_join_element_wise(texts, pa.scalar(_END), b"")
    if not descends:
        return ended
    _, offsets, data = ended.buffers()
    inverted = pa.py_buffer(~np.frombuffer(data or b"", np.uint8))
    return pa.Array.from_buffers(
        pa.binary(), len(ended), [None, offsets, inverted], 0, ended.offset
    )


def _number_bytes(column: pa.Array) -> Bytes:
    """Return fixed-width values as bytes in their order; undefined for NULL."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _raw(column.cast(pa.uint8()), 1)
    width = kind.bit_width // 8
    raw = _raw(column, width)
    if pa.types.is_decimal(kind) and kind.precision <= _ONE_WORD_DIGITS:
        raw, width = raw[:, :_WORD], _WORD
    if pa.types.is_fixed_size_binary(kind):
        return raw
    found: Bytes = np.ascontiguousarray(raw[:, ::-1])
    if pa.types.is_floating(kind):
        # NaNs of one sign are equal, whatever their other bits are.
        nan = np.isnan(raw.view(f"<f{width}")[:, 0])
        found[nan] = np.frombuffer(np.array(np.nan, f">f{width}").tobytes(), np.uint8) | (
            found[nan] & _sign_bit(width)
        )
        negative = found[:, :1] >= _SIGN
        return np.where(negative, ~found, found ^ _sign_bit(width))
    return found ^ _sign_bit(width)


def _wide_bytes(column: pa.Array) -> Bytes:
    """Return numbers of all widths as eight bytes, so that bits of equal weight align in a Z-order."""
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        return _filled(_number_bytes(column))
    if pa.types.is_boolean(kind):
        return _filled(_number_bytes(column) * np.uint8(_SIGN))
    if pa.types.is_decimal(kind):
        return _number_bytes(column)[:, :_WORD]
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return _number_bytes(column.cast(pa.float64() if pa.types.is_floating(kind) else pa.int64()))


def _filled(found: Bytes) -> Bytes:
    """Return the first eight bytes, padded with zeros."""
    wide = np.zeros((len(found), _WORD), np.uint8)
    wide[:, : found.shape[1]] = found[:, :_WORD]
    return wide


def _sign_bit(width: int) -> Bytes:
    sign = np.zeros(width, np.uint8)
    sign[0] = _SIGN
    return sign


def _raw(column: pa.Array, width: int) -> Bytes:
    """Return the memory of a fixed-width column, one row per value."""
    if not len(column):
        return np.zeros((0, width), np.uint8)
    start, count = column.offset * width, len(column) * width
    return np.frombuffer(column.buffers()[1], np.uint8, count, start).reshape(len(column), width)


def _without_nulls(found: Bytes, column: pa.Array) -> Bytes:
    if column.null_count:
        found = np.where(column.is_null().to_numpy(zero_copy_only=False)[:, None], 0, found)
    return found.astype(np.uint8, copy=False)


def _joined(parts: Sequence[Bytes | pa.BinaryArray], rows: int) -> pa.BinaryArray:
    """Return the concatenated parts of keys."""
    texts: list[pa.BinaryArray] = []
    numbers: list[Bytes] = []
    for part in parts:
        if isinstance(part, np.ndarray):
            numbers.append(part)
        else:
            texts += [*_as_texts(numbers, rows), part]
            numbers = []
    texts += _as_texts(numbers, rows)
    if not texts:
        return pa.array([b""] * rows, pa.binary())
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, b"")


def _as_texts(numbers: Sequence[Bytes], rows: int) -> list[pa.BinaryArray]:
    if not numbers:
        return []
    found = np.ascontiguousarray(np.concatenate(numbers, axis=1))
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(found.shape[1])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(found)]
    return [pa.Array.from_buffers(pa.binary(), rows, buffers)]
