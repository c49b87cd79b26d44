"""Times that ORC files cannot hold as every reader understands them.

A time is stored as seconds and a fraction. How fractions of negative seconds are stored is not specified: PyArrow
writes them negative, which Iceberg Java reads a second too early, and what both write of the last second before
1970 is read as a second later by Java itself. Beyond 64 bits of nanoseconds PyArrow reads other times than there are.
Source: https://issues.apache.org/jira/browse/ORC-763.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lake.core.errors import RefusedError

# Milliseconds that nanoseconds in 64 bits reach, less a day for old writers' time zones.
MOST_MILLIS = (2**63 - 1) // 1_000_000 - 86_400_000
_MICROS, _NANOS = 1_000_000, 1_000_000_000
_HINT = "choose another format: write.format.default=parquet"


def check_times(rows: pa.RecordBatch) -> None:
    """Look at all times of rows, wherever they are nested.

    Args:
        rows: as they are written, nothing behind their NULLs (see `propagate_nulls`).

    Raises:
        RefusedError: there is one that readers of the file would take for another.
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
            "which readers of ORC files take for different ones",
            hint=_HINT,
        )
    if np.any((values < -most) | (values > most)):
        raise RefusedError(
            f"column {name} has a time before 1678 or after 2261, too far for ORC files", hint=_HINT
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
