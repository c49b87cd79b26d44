"""Find the last row of each key in one pass, without sorting the keys."""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.errors import InvalidRequestError
from lake.core.keys.encoding import (
    Int64s,
    is_one_word,
    nulls_of,
    one_word_hashes,
    plain_column,
)


def last_rows(keys: pa.Table) -> Int64s:
    """Return the number of the last row of each key, ascending.

    Different keys are never taken for equal. NULL equals NULL, and -0.0 differs from 0.0.

    Args:
        keys: one row per key; all columns are key columns.

    Raises:
        RefusedError: a column is nested.
        InvalidRequestError: there is no column.
    """
    if not keys.num_columns:
        raise InvalidRequestError("a key needs a column")
    if not keys.num_rows:
        return np.zeros(0, np.int64)
    salt = np.uint64(secrets.randbits(64) | 1)
    found, *others = (_column_codes(keys.column(name), name, salt) for name in keys.column_names)
    for other in others:
        # Each factor is less than 2^31.
        pairs = found.codes.astype(np.int64) * other.distinct + other.codes
        found = _distinct(pa.chunked_array([pa.array(pairs)]))
    last = np.empty(found.distinct, np.int64)
    # Of several assignments to one code, the last one counts.
    last[found.codes] = np.arange(keys.num_rows)
    last.sort()
    return last


class _Codes(NamedTuple):
    """Numbers of values: equal values have equal numbers, less than ``distinct``."""

    codes: npt.NDArray[np.int32]
    distinct: int


def _column_codes(column: pa.ChunkedArray, name: str, salt: np.uint64) -> _Codes:
    chunks = [plain_column(chunk, name) for chunk in column.chunks]
    if is_one_word(pa.schema([pa.field(name, chunks[0].type)])):
        chunks = [_salted(chunk, salt) for chunk in chunks]
    return _distinct(pa.chunked_array(chunks))


def _salted(column: pa.Array, salt: np.uint64) -> pa.Array:
    """Return different numbers for different values, so that input cannot be crafted to share one hash slot."""
    mask = nulls_of(column) if column.null_count else None
    return pa.array(one_word_hashes(column) * salt, mask=mask)


def _distinct(column: pa.ChunkedArray) -> _Codes:
    encoded = column.dictionary_encode(null_encoding="encode")
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    # The last chunk has the values of all chunks.
    return _Codes(codes, len(encoded.chunk(encoded.num_chunks - 1).dictionary))
