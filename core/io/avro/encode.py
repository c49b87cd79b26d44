"""Encode Arrow columns as Avro records: each field for all rows at once, then joined by row.

A column's encoding is a list of pieces, which are adjacent in every record: a piece is bytes
that are the same in all rows, or a binary array with one value per row (null for an empty one).
Format: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.io.avro.container import Block

BLOCK_ROWS = 16_384
_BLOCK_BYTES = 4 * 1024 * 1024
_ABSENT, _PRESENT, _LIST_END = b"\x00", b"\x02", b"\x00"
_SMALL_VARINT_BYTES = 4

Piece: TypeAlias = Any
_FLOATS = {"float": pa.float32(), "double": pa.float64()}


def encode_records(
    schema: Mapping[str, Any], table: pa.Table, block_bytes: int = _BLOCK_BYTES
) -> Iterator[Block]:
    """Encode the rows of a table as records, in blocks.

    Args:
        schema: an Avro record schema in which an optional field is a union with null first.
        table: one column for each field, in the schema's order; nested records are structs, arrays are
            lists, maps may be maps, all matched by position. Names are ignored.
        block_bytes: the approximate size of a block in bytes.

    Raises:
        ValueError: a required field has no value.
    """
    for records in encode_rows(schema, table):
        yield from blocks_of(records, block_bytes)


def encode_rows(schema: Mapping[str, Any], table: pa.Table) -> Iterator[pa.LargeBinaryArray]:
    """Encode the rows of a table as records, one value each, in arrays of at most `BLOCK_ROWS`; see `encode_records`.

    Raises:
        ValueError: a required field has no value.
    """
    for start in range(0, table.num_rows, BLOCK_ROWS):
        part = table.slice(start, BLOCK_ROWS)
        columns = [_contiguous(column) for column in part.columns]
        yield _join(_record(schema, columns), part.num_rows)


def blocks_of(records: pa.LargeBinaryArray, block_bytes: int = _BLOCK_BYTES) -> Iterator[Block]:
    """Divide encoded records into blocks of about ``block_bytes``."""
    offsets, data = _ragged(records)
    first = 0
    while first < len(records):
        last = int(np.searchsorted(offsets, offsets[first] + block_bytes, side="right")) - 1
        last = min(max(last, first + 1), len(records))
        yield Block(last - first, memoryview(data)[offsets[first] : offsets[last]])
        first = last


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _record(schema: Mapping[str, Any], columns: list[pa.Array]) -> list[Piece]:
    pieces: list[Piece] = []
    for field, column in zip(schema["fields"], columns, strict=True):
        try:
            pieces += _field(field["type"], column)
        except ValueError as error:
            raise ValueError(f"{field['name']}: {error}") from error
    return pieces


def _field(kind: Any, column: pa.Array) -> list[Piece]:
    missing = column.null_count
    if kind == "null":
        return []
    if not isinstance(kind, list):
        if missing:
            raise ValueError(f"{missing} values are missing")
        return _value(kind, column)
    if missing == len(column):
        return [_ABSENT]
    if not missing:
        return [_PRESENT, *_value(kind[1], column)]
    present = pc.if_else(column.is_valid(), pa.scalar(_PRESENT), pa.scalar(_ABSENT))
    return [present.cast(pa.large_binary()), *_value(kind[1], column)]


def _value(kind: Any, column: pa.Array) -> list[Piece]:
    """Return the pieces of a type's values; the pieces of null rows are empty."""
    name = kind if isinstance(kind, str) else kind["type"]
    if name == "record":
        return _struct(kind, column)
    if name == "array":
        return _list(kind["items"], column)
    if name == "map":
        pair = [{"name": "key", "type": "string"}, {"name": "value", "type": kind["values"]}]
        return _list({"type": "record", "fields": pair}, column)
    if name in {"int", "long"}:
        return [_varints(_integers(column), column)]
    if name in {"string", "bytes"}:
        lengths = _numbers(pc.binary_length(column))
        return [_varints(lengths, column), column.cast(pa.large_binary())]
    return [_rows_of_bytes(_fixed_width(name, kind, column), column)]


def _fixed_width(name: str, kind: Any, column: pa.Array) -> np.ndarray[Any, Any]:
    """Return a matrix with one row of bytes per value: of numbers, fixed binaries or decimals."""
    if name == "boolean":
        return _numbers(column.cast(pa.uint8())).reshape(-1, 1)
    if name in _FLOATS:
        width = _FLOATS[name].bit_width // 8
        return _numbers(column.cast(_FLOATS[name])).view(np.uint8).reshape(len(column), width)
    return _fixed(kind["size"], column)


def _struct(kind: Mapping[str, Any], column: pa.Array) -> list[Piece]:
    if not column.null_count:
        return _record(kind, column.flatten())
    # The fields of a NULL struct have no bytes at all, not even the byte for NULL.
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    present = column.filter(column.is_valid())
    offsets, data = _ragged(_join(_record(kind, present.flatten()), len(present)))
    lengths = np.zeros(len(column), np.int64)
    lengths[valid] = np.diff(offsets)
    return [_from_ragged(np.concatenate(([offsets[0]], offsets[0] + np.cumsum(lengths))), data)]


def _list(items: Any, column: pa.Array) -> list[Piece]:
    if pa.types.is_map(column.type):
        column = _pairs(column)
    lengths = _numbers(pc.list_value_length(column))
    values = column.flatten()
    encoded = _join(_field(items, values), len(values))
    offsets, data = _ragged(encoded)
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    bodies = _from_ragged(offsets[bounds], data)
    counts = _varints(lengths.astype(np.int64), column, skip=lengths == 0)
    if not column.null_count:
        return [counts, bodies, _LIST_END]
    end = pc.if_else(column.is_valid(), pa.scalar(_LIST_END), pa.scalar(b""))
    return [counts, bodies, end.cast(pa.large_binary())]


def _pairs(column: pa.Array) -> pa.Array:
    """Return a column of maps as lists of pairs."""
    if column.offset:
        column = pa.concat_arrays([column, column.slice(0, 0)])
    fields = [column.type.key_field, column.type.item_field]
    pairs = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, pairs, mask=mask)


def _join(pieces: list[Piece], rows: int) -> pa.Array:
    """Return one binary value per row: its pieces, concatenated."""
    merged: list[Any] = []
    for constant, group in groupby(pieces, key=lambda piece: isinstance(piece, bytes)):
        together = list(group)
        merged += [pa.scalar(b"".join(together), pa.large_binary())] if constant else together
    if not any(isinstance(piece, pa.Array) for piece in merged):
        return pa.array([b"".join(scalar.as_py() for scalar in merged)] * rows, pa.large_binary())
    separator = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(
        *merged, separator, null_handling="replace", null_replacement=b""
    )


def _integers(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    return _numbers(column.cast(pa.int64()))


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return a column's numbers; zero for null."""
    if column.null_count:
        column = column.fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _varints(
    values: np.ndarray[Any, Any], column: pa.Array, *, skip: np.ndarray[Any, Any] | None = None
) -> pa.Array:
    """Return zig-zag varints; empty where the column is null or ``skip`` is true."""
    signed = values.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    # 32 bits take half the time of 64, and most numbers are small.
    rest = rest.astype(np.uint32 if width <= _SMALL_VARINT_BYTES else np.uint64)
    lengths = np.ones(len(rest), np.uint8)
    for size in range(1, width):
        lengths += rest >= 1 << (7 * size)
    digits = np.empty((len(rest), width), np.uint8)
    for place in range(width):
        digits[:, place] = (rest >> 7 * place) & 0x7F
        digits[:, place] |= (lengths > place + 1).view(np.uint8) << 7
    if column.null_count:
        lengths[~column.is_valid().to_numpy(zero_copy_only=False)] = 0
    if skip is not None:
        lengths[skip] = 0
    if lengths.min(initial=width) == width:
        return _rows_of_bytes(digits)
    data = digits[np.arange(width, dtype=np.uint8) < lengths[:, None]]
    return _from_ragged(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), data)


def _rows_of_bytes(matrix: np.ndarray[Any, Any], column: pa.Array | None = None) -> pa.Array:
    """Return the rows of a matrix as binary values; empty where the column is null."""
    matrix = np.ascontiguousarray(matrix, np.uint8)
    rows, width = matrix.shape
    if column is None or not column.null_count:
        return _from_ragged(
            np.arange(0, (rows + 1) * width, width or 1)[: rows + 1], matrix.ravel()
        )
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return _from_ragged(np.concatenate(([0], np.cumsum(valid * width))), matrix[valid].ravel())


def _fixed(size: int, column: pa.Array) -> np.ndarray[Any, Any]:
    """Return a matrix of ``size`` bytes per row: fixed binaries, or big-endian decimals."""
    rows, start = len(column), column.offset
    buffer = column.buffers()[1]
    width = column.type.byte_width
    bytes_ = np.frombuffer(buffer, np.uint8, rows * width, start * width).reshape(rows, width)
    if pa.types.is_decimal(column.type):
        return bytes_[:, ::-1][:, width - size :]
    if width != size:
        raise ValueError(f"{width} bytes instead of {size}")
    return bytes_


def _ragged(values: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Any]:
    """Return the offsets and the data buffer of a large binary array."""
    _, offsets, data = values.buffers()
    numbers = np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)
    return numbers, data if data is not None else pa.py_buffer(b"")


def _from_ragged(offsets: np.ndarray[Any, Any], data: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
