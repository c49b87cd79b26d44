"""The single-value serialization of a column's values, as matrices of bytes.

Source: https://iceberg.apache.org/spec/#appendix-d-single-value-serialization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from lake.core.base.arrow import Bytes

_DECIMAL_BYTES = 16


def value_bytes(column: pa.Array) -> Iterator[Bytes]:
    """Yield the serialized values of a column of a primitive type; NULLs and empty values are left out.

    Returns:
        Matrices of shape (values, bytes of a value), each of another width.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    column = column.drop_null()
    if not len(column):
        return
    kind = column.type
    if kinds.is_boolean(kind):
        yield pc.cast(column, pa.uint8()).to_numpy()[:, None]
    elif kinds.is_decimal(kind):
        yield from _of_decimals(column)
    elif kinds.is_fixed_size_binary(kind):
        yield _of_width(column, kind.byte_width)
    elif kinds.is_primitive(kind):
        yield _of_width(column, kind.bit_width // 8)
    else:
        yield from _of_texts(column)


def _of_width(column: pa.Array, width: int) -> Bytes:
    start = column.offset * width
    data = np.frombuffer(column.buffers()[1], np.uint8)
    return data[start : start + len(column) * width].reshape(-1, width)


def _of_texts(column: pa.Array) -> Iterator[Bytes]:
    large = pa.large_binary()
    different = pc.cast(column, large).unique()
    bounds = np.frombuffer(different.buffers()[1], np.int64)[: len(different) + 1]
    data: Any = different.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    starts, sizes = bounds[:-1], np.diff(bounds)
    for size in np.unique(sizes[sizes > 0]).tolist():
        own = starts[sizes == size]
        yield flat[own[:, None] + np.arange(size)]


def _of_decimals(column: pa.Array) -> Iterator[Bytes]:
    """Yield the unscaled values in two's complement, big-endian, with as few bytes as each needs."""
    wide = pc.cast(column, pa.decimal128(38, column.type.scale))
    rows = _of_width(wide, _DECIMAL_BYTES)[:, ::-1]
    sign = np.where(rows[:, :1] >= 128, np.uint8(255), np.uint8(0))  # noqa: PLR2004 - the sign's bit
    # A byte can be left out if it and the first bit of the next one repeat the sign.
    extra = (rows[:, :-1] == sign) & ((rows[:, 1:] ^ sign) < 128)  # noqa: PLR2004
    leading = np.minimum.accumulate(extra, axis=1).sum(axis=1)
    for skipped in np.unique(leading).tolist():
        yield np.ascontiguousarray(rows[leading == skipped, skipped:])
