"""Partition tuples as integers, for vectorised comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Int64s, one_array

_MOST_CODES = 2**31


def partition_codes(columns: Sequence[pa.ChunkedArray]) -> list[Int64s]:
    """Return an integer for each tuple of columns of one spec; two are equal exactly if the tuples are.

    NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0, as when Iceberg Java compares partitions.
    """
    lengths = [len(column) for column in columns]
    codes = np.zeros(sum(lengths), np.int64)
    names = dict.fromkeys(field.name for column in columns for field in column.type)
    for name in names:
        values = pa.concat_arrays(_children(columns, name))
        encoded = _comparable(values).dictionary_encode(null_encoding="encode")
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        if len(codes) and int(codes.max()) >= _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1]
    return np.split(codes, np.cumsum(lengths)[:-1])


def partition_tuples(column: pa.ChunkedArray) -> list[tuple[Any, ...]]:
    """Return the tuples of one spec as Python values; they are equal exactly if their `partition_codes` are."""
    fields = [_comparable(values).to_pylist() for values in one_array(column).flatten()]
    return list(zip(*fields, strict=True)) if fields else [()] * len(column)


def _children(columns: Sequence[pa.ChunkedArray], name: str) -> list[pa.Array]:
    """Return one field of all tuples as one type; NULLs for a column that lacks it."""
    found = [
        chunk.field(name) if chunk.type.get_field_index(name) >= 0 else pa.nulls(len(chunk))
        for column in columns
        for chunk in column.chunks
    ]
    kinds = [item.type for item in found if not pa.types.is_null(item.type)]
    return [item.cast(kinds[0]) if kinds else item for item in found] or [pa.nulls(0)]


def _comparable(values: Any) -> Any:
    """Return floats and times as integers: floats compare by their bits, and all NaN are equal."""
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())  # noqa: PLR2004
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    numbers[np.isnan(numbers)] = np.nan
    mask = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers.view(np.int64), mask=mask)
