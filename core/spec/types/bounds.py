"""Column bounds and counts: from and to the binary maps of manifests, as typed Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lake.core.base.errors import BadInputError
from lake.core.spec.types.single_values import arrow_type

BoundColumn = Literal["lower_bounds", "upper_bounds"]
CountColumn = Literal["column_sizes", "value_counts", "null_value_counts", "nan_value_counts"]
TextOrBytes = TypeVar("TextOrBytes", str, bytes)

_DECIMAL_BYTES = 16
_LAST_CODE_POINT = 0x10FFFF
_FIRST_SURROGATE = 0xD800
_LAST_SURROGATE = 0xDFFF
_LAST_BYTE = 0xFF

# The byte lengths that a bound may have, and how each is read; a shorter one was written before a promotion.
_LAYOUTS: Mapping[type[IcebergType], Mapping[int, str]] = {
    BooleanType: {1: "u1"},
    IntegerType: {4: "<i4"},
    LongType: {8: "<i8", 4: "<i4"},
    FloatType: {4: "<f4"},
    DoubleType: {8: "<f8", 4: "<f4"},
    DateType: {4: "<i4"},
    TimeType: {8: "<i8"},
    TimestampType: {8: "<i8"},
    TimestamptzType: {8: "<i8"},
    TimestampNanoType: {8: "<i8"},
    TimestamptzNanoType: {8: "<i8"},
}


def comparable_type(type_: IcebergType) -> pa.DataType | None:
    """Return the Arrow type of a type's values; None for a type without an order."""
    try:
        found = arrow_type(type_)
    except BadInputError:
        return None
    return None if pa.types.is_null(found) else found


def comparable(array: pa.Array, type_: IcebergType) -> pa.Array:
    """Return a column's values in the form used for comparison: dates and times as integers.

    Dates are in days, times and timestamps in the type's unit. A narrower Arrow type (a
    promoted column) is widened; arrays of types without an order are returned unchanged.

    Raises:
        pyarrow.ArrowException: the array does not contain values of the type.
    """
    expected = comparable_type(type_)
    if expected is None:
        return array
    values = array.storage if isinstance(array, pa.ExtensionArray) else array
    if values.type not in (expected, pa.large_string(), pa.large_binary()):
        values = values.cast(expected)
    if not pa.types.is_temporal(expected):
        return values
    return values.view(pa.int32() if pa.types.is_date32(expected) else pa.int64())


def bound_array(
    entries: pa.Table, column: BoundColumn, field_id: int, type_: IcebergType
) -> pa.Array:
    """Decode one field's bounds of all files into an array of the field's Arrow type.

    NULL where a file has no bound for the field, or where the bytes are not a value of the type.
    """
    return decode_bounds(map_values(entries, column, field_id, pa.binary()), type_)


def count_array(entries: pa.Table, column: CountColumn, field_id: int) -> pa.Array:
    """Return one field's counts of all files as int64; NULL where a file has no count."""
    return map_values(entries, column, field_id, pa.int64())


def decode_bounds(values: pa.Array, type_: IcebergType) -> pa.Array:
    """Decode binary single values into the type's Arrow type; NULL where the bytes are not a value of it.

    Bounds written before a promotion (int to long, float to double, a wider decimal) are read as
    their original type. Format: https://iceberg.apache.org/spec/#binary-single-value-serialization.
    """
    values = values if pa.types.is_binary(values.type) else values.cast(pa.binary())
    expected = comparable_type(type_)
    if expected is None:
        return pa.nulls(len(values))
    if isinstance(type_, StringType):
        return _decode_text(values)
    if isinstance(type_, BinaryType):
        return values
    if isinstance(type_, DecimalType):
        return _decode_decimals(values, expected)
    if pa.types.is_fixed_size_binary(expected):
        fits = pc.equal(pc.binary_length(values), expected.byte_width)
        return pc.if_else(fits, values, pa.scalar(None, pa.binary())).cast(expected)
    return _decode_numbers(values, _LAYOUTS[type(type_)], expected)


def truncate_lower(value: TextOrBytes, length: int) -> TextOrBytes:
    """Return a lower bound of at most ``length`` characters (or bytes)."""
    return value[:length]


def truncate_upper(value: TextOrBytes, length: int) -> TextOrBytes | None:
    """Return an upper bound of at most ``length`` characters (or bytes); None if there is none."""
    return value if len(value) <= length else prefix_end(value[:length])


def prefix_end(prefix: TextOrBytes) -> TextOrBytes | None:
    """Return the least value greater than every value with this prefix; None if there is none.

    Text is ordered by code point, which is the order of its UTF-8 bytes. Surrogates are not
    characters, so U+E000 follows U+D7FF.
    """
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(bytes([_LAST_BYTE]))
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = prefix.rstrip(chr(_LAST_CODE_POINT))
    return text[:-1] + _next_character(text[-1]) if text else None


def _next_character(character: str) -> str:
    following = ord(character) + 1
    inside = _FIRST_SURROGATE <= following <= _LAST_SURROGATE
    return chr(_LAST_SURROGATE + 1 if inside else following)


def map_values(entries: pa.Table, column: str, field_id: int, type_: pa.DataType) -> pa.Array:
    """Return the value of one key in a column of maps; NULL where a map lacks it, is NULL, or was not read."""
    if column not in entries.column_names:
        return pa.nulls(entries.num_rows, type_)
    chunks = [_chunk_values(chunk, field_id) for chunk in entries.column(column).chunks]
    return pa.concat_arrays(chunks).cast(type_) if chunks else pa.array([], type_)


def _chunk_values(maps: pa.Array, field_id: int) -> pa.Array:
    if pa.types.is_null(maps.type):
        return maps
    offsets = maps.offsets.to_numpy()
    keys = maps.values.field("key").fill_null(-1).to_numpy()
    pairs = np.flatnonzero(keys[offsets[0] : offsets[-1]] == field_id) + offsets[0]
    rows = np.searchsorted(offsets, pairs, side="right") - 1
    chosen = np.full(len(maps), -1, dtype=np.int64)
    chosen[rows] = pairs
    missing = (chosen < 0) | maps.is_null().to_numpy(zero_copy_only=False)
    return maps.values.field("value").take(pa.array(chosen, mask=missing))


def _lengths(values: pa.Array) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.binary_length(values).fill_null(-1).to_numpy()
    return lengths


def _bytes_of(values: pa.Array, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Return the bytes of the chosen values, concatenated."""
    picked = values.filter(pa.array(chosen))
    if not len(picked):
        return np.empty(0, dtype=np.uint8)
    _, offsets, data = picked.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[picked.offset : picked.offset + len(picked) + 1]
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return raw[ends[0] : ends[-1]]


def _decode_numbers(
    values: pa.Array, layouts: Mapping[int, str], expected: pa.DataType
) -> pa.Array:
    lengths = _lengths(values)
    decoded = np.zeros(len(values), dtype=next(iter(layouts.values())))
    for width, layout in layouts.items():
        decoded[lengths == width] = _bytes_of(values, lengths == width).view(layout)
    numbers = pa.array(decoded, mask=~np.isin(lengths, list(layouts)))
    return numbers.view(expected) if pa.types.is_temporal(expected) else numbers.cast(expected)


def _decode_decimals(values: pa.Array, expected: pa.DataType) -> pa.Array:
    """Sign-extend big-endian integers of 1 to 16 bytes to Arrow's little-endian 16."""
    lengths = _lengths(values)
    unscaled = np.zeros((len(values), _DECIMAL_BYTES), dtype=np.uint8)
    known = (lengths >= 1) & (lengths <= _DECIMAL_BYTES)
    for width in np.unique(lengths[known]):
        raw = _bytes_of(values, lengths == width).reshape(-1, width)
        wide = np.repeat(np.where(raw[:, :1] & 0x80, 0xFF, 0).astype(np.uint8), _DECIMAL_BYTES, 1)
        wide[:, _DECIMAL_BYTES - width :] = raw
        unscaled[lengths == width] = wide[:, ::-1]
    validity = pa.array(known).buffers()[1]
    return pa.Array.from_buffers(expected, len(values), [validity, pa.py_buffer(unscaled)])


def _decode_text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        # Only for bytes that a writer cut inside a character.
        return pa.array([_text_or_none(value) for value in values.to_pylist()], pa.string())


def _text_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
