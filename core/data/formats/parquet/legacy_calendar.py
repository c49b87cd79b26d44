"""Refuse old dates in sources that Spark wrote in the hybrid Julian and Gregorian calendar.

With `spark.sql.parquet.datetimeRebaseModeInWrite` or `int96RebaseModeInWrite` = LEGACY, Spark writes different
numbers for dates before 1582-10-15 and for times before 1900 (with the historical offsets of a time zone), and
notes that in the footer. Source: Spark's DataSourceUtils and RebaseDateTime.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import RefusedError

_NOTES = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
# Both calendars have the same numbers from these days and seconds since 1970 on.
_SAME_DAYS, _SAME_SECONDS = -141_427, -2_208_988_800
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_legacy(parquet: Any) -> bool:
    """Whether the footer of an open Parquet file notes the legacy calendar."""
    return any(note in (parquet.metadata.metadata or {}) for note in _NOTES)


def refuse_old_times(batch: pa.RecordBatch, path: str) -> None:
    """Refuse rows whose values depend on the calendar, in a file with such a note.

    Raises:
        RefusedError: a column has a date before 1582-10-15 or a time before 1900.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if any(_is_old(values) for values in _leaves(column)):
            raise RefusedError(
                f"column {name} of {path} has old dates or times in a calendar that is not supported: "
                "Spark wrote the file in LEGACY mode",
                hint="rewrite the file with Spark with spark.sql.parquet.datetimeRebaseModeInWrite "
                "and spark.sql.parquet.int96RebaseModeInWrite set to CORRECTED",
            )


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_struct(kind):
        for part in column.flatten():
            yield from _leaves(part)
    elif pa.types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(column.flatten())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        yield column


def _is_old(values: pa.Array) -> bool:
    least = pc.min(values)
    if not least.is_valid:
        return False
    if pa.types.is_date(values.type):
        return bool(least.cast(pa.date32()).value < _SAME_DAYS)
    return bool(least.value < _SAME_SECONDS * _PER_SECOND[values.type.unit])
