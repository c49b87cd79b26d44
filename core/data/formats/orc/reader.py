"""Read rows from an ORC file, one stripe at a time.

PyArrow reads whole stripes, and times as 64-bit nanoseconds, which end in the year 2262. A file with other times by
its statistics is refused, because PyArrow would silently return wrong times; so is one without statistics that hold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.orc

from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.data.columns.column_mapping import ColumnMapping
from lake.core.data.columns.data_file import Leaves, check_count
from lake.core.data.columns.file_slice import FileSlice
from lake.core.data.columns.row_ranges import RowRange, row_ranges
from lake.core.data.columns.trusted_statistics import orc_times_hold
from lake.core.data.formats.orc.tail import OrcTail, Times
from lake.core.data.formats.orc.timestamps import MOST_MILLIS
from lake.core.data.formats.orc.types import table_type

_MAX_STRIPE_BYTES = 2 * 1024 * 1024 * 1024
_MAX_BATCH_ROWS = 128 * 1024
_ZONES = "/usr/share/zoneinfo"


class OrcRows:
    """An open ORC file; see `lake.core.data.columns.data_file.RowFile`."""

    def __init__(self, source: Any, file: FileSlice) -> None:
        self._file = file
        self._stripes = OrcStripes(source, file.path)
        check_count(file, self._stripes.rows)
        self.schema = self._stripes.schema

    def batches(
        self, columns: ColumnMapping, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows with the file's types, each batch with the position of its first row."""
        most_bytes = columns.settings.batch_bytes
        for row_range in row_ranges(self._stripes.stripe_rows, self._file):
            if leaves is None or leaves(row_range.start, row_range.rows):
                yield from self._stripes.batches(row_range, columns.names, most_bytes)


class OrcStripes:
    """An open ORC file, stripe by stripe.

    Args:
        source: the file, for random access.
        path: the file's location.
        exact: read times with nanoseconds, unless the file declares microseconds; otherwise truncate them to
            microseconds, as Iceberg Java does for data files.
    """

    def __init__(self, source: Any, path: str, *, exact: bool = False) -> None:
        self._path = path
        self._orc = open_orc(source)
        self._tail = OrcTail.of(self._orc, path)
        self.rows = sum(stripe.rows for stripe in self._tail.stripes)
        if self.rows != self._orc.nrows:
            raise CorruptFileError(f"{path} has a row count that differs from its stripes")
        _check_times(self._tail.times, path)
        self._stored: pa.Schema = self._orc.schema
        self.schema = pa.schema([table_type(item, exact=exact) for item in self._stored])

    @property
    def stripe_rows(self) -> list[tuple[int, int]]:
        """The offset of the first byte and the number of rows of each stripe."""
        return [(stripe.offset, stripe.rows) for stripe in self._tail.stripes]

    def all_rows(self, most_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows in batches, each with the position of its first row."""
        position = 0
        for index, stripe in enumerate(self._tail.stripes):
            row_range = RowRange(index, position, 0, stripe.rows)
            yield from self.batches(row_range, self.schema.names, most_bytes)
            position += stripe.rows

    def batches(
        self, row_range: RowRange, names: Sequence[str], most_bytes: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows of a stripe, and check their number against the tail."""
        promised = self._tail.stripes[row_range.piece].rows
        stripe = self._stripe(row_range.piece, names, promised)
        if stripe.num_rows != promised:
            raise CorruptFileError(
                f"{self._path} has {stripe.num_rows} rows in a stripe that should have {promised}"
            )
        size = most_bytes * promised // max(stripe.nbytes, 1)
        size = max(1, min(size, _MAX_BATCH_ROWS))
        for start in range(0, row_range.rows, size):
            rows = stripe.slice(row_range.skip + start, min(size, row_range.rows - start))
            yield row_range.start + start, rows

    def _row_bytes(self, names: Sequence[str]) -> float:
        """Estimate the bytes of a row of the given columns in memory."""
        size, first = 0.0, 1
        for item in self._stored:
            end = first + _parts(item.type)
            if item.name in names:
                texts = sum(self._tail.text_bytes[first:end])
                size += _width(item.type) + texts / max(self.rows, 1)
            first = end
        return size

    def _stripe(self, index: int, names: Sequence[str], promised: int) -> pa.RecordBatch:
        if not names:
            return pa.RecordBatch.from_arrays([pa.nulls(promised)], ["none"]).select([])
        if promised * self._row_bytes(names) > _MAX_STRIPE_BYTES:
            raise RefusedError(
                f"{self._path} has a stripe of {promised} rows, which does not fit in memory"
            )
        found = self._orc.read_stripe(index, columns=list(names))
        parts = [self.schema.field(item.name) for item in found.schema]
        columns = []
        for column, item in zip(found.columns, parts, strict=True):
            column.validate(full=True)
            # The type in the file is finer than the table's, but the values are not.
            same = column.type == item.type
            columns.append(column if same else column.cast(item.type, safe=False))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(parts))


def open_orc(source: Any) -> Any:
    """Open an ORC file with PyArrow."""
    # ORC's library fails without time zone files. Small systems lack them, but Python's `tzdata` contains them.
    if not os.path.isdir(_ZONES) and "TZDIR" not in os.environ:
        found = find_spec("tzdata")
        if found is not None and found.origin:
            os.environ["TZDIR"] = os.path.join(os.path.dirname(found.origin), "zoneinfo")
    return pyarrow.orc.ORCFile(source)


def _check_times(times: Any, path: str) -> None:
    for item in times:
        if item is None or not orc_times_hold(item.values, item.low, item.high):
            raise RefusedError(
                f"{path} has times without statistics of their range, as files of Hive 0.11 and 0.12: times before "
                "1678 or after 2261 would be read as others",
                hint="let a newer writer of ORC or Parquet, such as Hive or Spark, write the file again",
            )
        if not _within(item):
            raise RefusedError(
                f"{path} has times before 1678 or after 2261, which cannot be read from ORC files"
            )


def _within(times: Times) -> bool:
    return (
        times.low is None
        or times.high is None
        or (times.low >= -MOST_MILLIS and times.high <= MOST_MILLIS)
    )


def _parts(kind: pa.DataType) -> int:
    """Return the number of ORC columns of a type: itself and all nested types."""
    if pa.types.is_map(kind):
        return 1 + _parts(kind.key_type) + _parts(kind.item_type)
    if pa.types.is_list(kind):
        return 1 + _parts(kind.value_type)
    if pa.types.is_nested(kind):
        return 1 + sum(_parts(kind.field(at).type) for at in range(kind.num_fields))
    return 1


def _width(kind: pa.DataType) -> int:
    """Return the minimum size of a value in bytes."""
    if pa.types.is_struct(kind):
        return sum(_width(item.type) for item in kind)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 4
    return max(int(kind.bit_width) // 8, 1)
