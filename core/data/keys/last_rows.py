"""Find the last row of each key in one pass, without sorting the keys."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s
from lake.core.base.errors import InvalidRequestError
from lake.core.data.keys.encoding import is_one_word, nulls_of, one_word_hashes, plain_column

_NO_ROW = -1
_MOST_CODES = 2**31


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
    batches = keys.to_batches()
    found, *others = (
        _column_codes([batch.column(index) for batch in batches], name, salt)
        for index, name in enumerate(keys.column_names)
    )
    for other in others:
        # Each factor is at most 2^31.
        pairs = [
            pa.array(left.astype(np.int64) * other.limit + right)  # check: all-key-columns
            for left, right in zip(found.parts, other.parts, strict=True)
        ]
        found = _distinct(pairs)
    last: Int64s = np.full(found.limit, _NO_ROW)
    first = 0
    for codes in found.parts:
        # Of several assignments to one code, the last one counts.
        last[codes] = np.arange(first, first + len(codes))
        first += len(codes)
    last = last[last != _NO_ROW]
    last.sort()
    return last


class _Codes(NamedTuple):
    """Dictionary codes: equal values have equal codes, less than ``limit``, which is at most 2^31.

    They are chunked like the values.
    """

    parts: Sequence[npt.NDArray[np.integer[Any]]]
    limit: int


def _column_codes(parts: Sequence[pa.Array], name: str, salt: np.uint64) -> _Codes:
    parts = [plain_column(part, name) for part in parts]
    if (codes := _dense_codes(parts)) is not None:
        return codes
    if is_one_word(pa.schema([pa.field(name, parts[0].type)])):
        parts = [_salted(part, salt) for part in parts]
    return _distinct(parts)


def _dense_codes(parts: Sequence[pa.Array]) -> _Codes | None:
    """Return the codes of integers whose range is not wider than their number; None for other values.

    They need no hash table.
    """
    column = pa.chunked_array(parts)
    if not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    ends = pc.min_max(column)
    least, limit = ends["min"].as_py(), ends["max"].as_py() - ends["min"].as_py() + 1
    if limit > min(len(column), _MOST_CODES):
        return None
    return _Codes([np.subtract(part.to_numpy(), least, dtype=np.int64) for part in parts], limit)


def _salted(column: pa.Array, salt: np.uint64) -> pa.Array:
    """Return different numbers for different values, so that input cannot be crafted to share one hash slot."""
    mask = nulls_of(column) if column.null_count else None
    return pa.array(one_word_hashes(column) * salt, mask=mask)


def _distinct(parts: Sequence[pa.Array]) -> _Codes:
    encoded = pa.chunked_array(parts).dictionary_encode(null_encoding="encode")
    # The last part has the values of all parts.
    values = encoded.chunk(encoded.num_chunks - 1).dictionary
    return _Codes([part.indices.to_numpy() for part in encoded.chunks], len(values))
