"""Whole rows as keys: two rows are identical if all their values are, including nested values.

NULL equals NULL, NaN equals NaN, -0.0 differs from 0.0; lists and maps are compared in order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s
from lake.core.data.keys.encoding import EncodedKeys, encode_keys, tail_offsets


def encode_rows(batch: pa.RecordBatch) -> EncodedKeys:
    """Encode rows with columns of any type."""
    columns: list[pa.Array] = []
    for column in batch.columns:
        _add_plain(column, columns)
    names = [str(number) for number in range(len(columns))]
    return encode_keys(pa.RecordBatch.from_arrays(columns, names=names))


def row_codes(batch: pa.RecordBatch) -> Int64s:
    """Return a code per row, equal for identical rows, numbered from 0 by first occurrence."""
    codes = _as_bytes(encode_rows(batch)).dictionary_encode().indices
    found: Int64s = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _add_plain(column: pa.Array, found: list[pa.Array]) -> None:
    """Append flat columns that together represent a column's values completely."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        _add_plain(column.storage, found)
    elif pa.types.is_struct(kind):
        found.append(column.is_valid())
        for part in column.flatten():
            _add_plain(part, found)
    elif pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        _add_plain(column.cast(pa.list_(entry)), found)
    elif pa.types.is_nested(kind):
        found.append(_elements(column))
    else:
        found.append(column)


def _elements(column: pa.Array) -> pa.Array:
    """Return each list's elements as bytes, concatenated; NULL for a NULL list."""
    values = column.flatten()
    encoded = _as_bytes(encode_rows(pa.RecordBatch.from_arrays([values], names=["element"])))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = tail_offsets(encoded)[np.concatenate([[0], np.cumsum(lengths)])]
    memory = encoded.buffers()[2] if len(encoded) else pa.py_buffer(b"")
    parts = [None, pa.py_buffer(np.ascontiguousarray(ends, np.int64)), memory]
    lists = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(column), parts)
    return pc.if_else(column.is_valid(), lists, pa.scalar(None, pa.large_binary()))


def _as_bytes(keys: EncodedKeys) -> pa.LargeBinaryArray:
    """Return each key as one binary value; its words determine where a text ends."""
    words = np.ascontiguousarray(keys.words)
    kind = pa.binary(words.shape[1] * words.itemsize)
    heads = pa.FixedSizeBinaryArray.from_buffers(kind, len(words), [None, pa.py_buffer(words)])
    heads = heads.cast(pa.large_binary())
    if keys.tail is None:
        return heads
    return pc.binary_join_element_wise(heads, keys.tail, pa.scalar(b"", pa.large_binary()))
