"""Refuse times that readers of ORC files interpret in different ways.

A time is stored as seconds and a fraction. The storage of fractions of negative seconds is not specified: PyArrow
writes them as negative, which Iceberg Java reads as one second earlier; and Java reads times in the last second
before 1970, written by either, as one second later. Beyond 64 bits of nanoseconds PyArrow returns wrong times.
Source: https://issues.apache.org/jira/browse/ORC-763.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lake.core.base.errors import RefusedError

# The range of 64-bit nanoseconds in ms, less a day for the time zones of old writers.
MOST_MILLIS = (2**63 - 1) // 1_000_000 - 86_400_000
_MICROS, _NANOS = 1_000_000, 1_000_000_000
_HINT = "choose another format: write.format.default=parquet"


def check_times(rows: pa.RecordBatch) -> None:
    """Check all times of rows, including nested ones.

    Args:
        rows: the rows to write, after `_with_nulls` of the writer.

    Raises:
        RefusedError: readers of the file would interpret a time in different ways.
    """
    for item, column in zip(rows.schema, rows.columns, strict=True):
        for times in _times(column):
            _check(times, item.name)


def _check(times: pa.Array, name: str) -> None:
    second = _NANOS if times.type.unit == "ns" else _MICROS
    values = times.cast(pa.int64()).drop_null().to_numpy()
    most = MOST_MILLIS * (second // 1000)
    if np.any((values < 0) & (values % second != 0)):
        raise RefusedError(
            f"column {name} has a time before 1970 with a fraction of a second, "
            "which readers of ORC files interpret in different ways",
            hint=_HINT,
        )
    if np.any((values < -most) | (values > most)):
        raise RefusedError(
            f"column {name} has a time before 1678 or after 2261, which is out of range for ORC files",
            hint=_HINT,
        )


def _times(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        yield column
    elif pa.types.is_struct(kind):
        for part in column.flatten():
            yield from _times(part)
    elif pa.types.is_map(kind):
        yield from _times(column.keys)
        yield from _times(column.items)
    elif pa.types.is_list(kind):
        yield from _times(column.values)
