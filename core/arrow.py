"""Arrow columns as single arrays."""

from __future__ import annotations

import pyarrow as pa


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, copied only where it has several chunks.

    Parts of extension types, and strings of over 2 GiB in total, do not fit in one array: the caller limits both.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
