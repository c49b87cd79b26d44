"""Rows out of an ORC file, a stripe at a time.

PyArrow reads a stripe whole, and times as nanoseconds in 64 bits, which end in the year 2262: a file that has
others is refused by its statistics, for they would silently become wrong ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.orc

from lake.core.columns.column_mapping import FileColumns
from lake.core.columns.data_file import Leaves, check_count
from lake.core.columns.file_slice import FileSlice
from lake.core.columns.row_ranges import Span, spans_of
from lake.core.errors import CorruptFileError, RefusedError
from lake.core.formats.orc.tail import Tail, Times
from lake.core.formats.orc.timestamps import MOST_MILLIS
from lake.core.formats.orc.types import table_type

_MAX_STRIPE_BYTES = 2 * 1024 * 1024 * 1024
_MAX_BATCH_ROWS = 128 * 1024
_ZONES = "/usr/share/zoneinfo"


class OrcRows:
    """An open ORC file; see `lake.core.columns.data_file.RowFile`."""

    def __init__(self, source: Any, file: FileSlice) -> None:
        self._file = file
        self._stripes = OrcStripes(source, file.path)
        check_count(file, self._stripes.rows)
        self.schema = self._stripes.schema

    def batches(
        self, columns: FileColumns, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows as the file has them, each batch with its first row's position."""
        most_bytes = columns.settings.batch_bytes
        for span in spans_of(self._stripes.places, self._file):
            if leaves is None or leaves(span.start, span.rows):
                yield from self._stripes.batches(span, columns.names, most_bytes)


class OrcStripes:
    """An open ORC file, stripe by stripe.

    Args:
        source: its bytes, for random access.
        path: where it lies.
        exact: read times with the nanoseconds that ORC has, unless the file says that they have none; else they
            are cut to microseconds, as Iceberg Java does with data files.
    """

    def __init__(self, source: Any, path: str, *, exact: bool = False) -> None:
        self._path = path
        self._orc = open_orc(source)
        self._tail = Tail.of(self._orc, path)
        self.rows = sum(stripe.rows for stripe in self._tail.stripes)
        if self.rows != self._orc.nrows:
            raise CorruptFileError(f"{path} has other rows in its stripes than it says")
        _check_times(self._tail.times, path)
        self._stored: pa.Schema = self._orc.schema
        self.schema = pa.schema([table_type(item, exact=exact) for item in self._stored])

    @property
    def places(self) -> list[tuple[int, int]]:
        """Of each stripe the offset of its first byte, and how many rows it has."""
        return [(stripe.offset, stripe.rows) for stripe in self._tail.stripes]

    def all_rows(self, most_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows in batches, each with its first row's position."""
        position = 0
        for index, stripe in enumerate(self._tail.stripes):
            span = Span(index, position, 0, stripe.rows)
            yield from self.batches(span, self.schema.names, most_bytes)
            position += stripe.rows

    def batches(
        self, span: Span, names: Sequence[str], most_bytes: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows of a stripe, exactly as many as the tail promises."""
        promised = self._tail.stripes[span.piece].rows
        stripe = self._stripe(span.piece, names, promised)
        if stripe.num_rows != promised:
            raise CorruptFileError(
                f"{self._path} gave {stripe.num_rows} rows of a stripe of {promised}"
            )
        size = most_bytes * promised // max(stripe.nbytes, 1)
        size = max(1, min(size, _MAX_BATCH_ROWS))
        for start in range(0, span.rows, size):
            rows = stripe.slice(span.skip + start, min(size, span.rows - start))
            yield span.start + start, rows

    def _row_bytes(self, names: Sequence[str]) -> float:
        """Return about how many bytes a row of some columns takes in memory."""
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
                f"{self._path} has a stripe of {promised} rows, more than memory holds at once"
            )
        found = self._orc.read_stripe(index, columns=list(names))
        parts = [self.schema.field(item.name) for item in found.schema]
        columns = []
        for column, item in zip(found.columns, parts, strict=True):
            column.validate(full=True)
            # Times in files are finer than the table's, but not their values.
            same = column.type == item.type
            columns.append(column if same else column.cast(item.type, safe=False))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(parts))


def open_orc(source: Any) -> Any:
    """Open an ORC file with PyArrow."""
    # ORC's library ends without the zones' files, which small systems lack but Python's `tzdata` brings.
    if not os.path.isdir(_ZONES) and "TZDIR" not in os.environ:
        found = find_spec("tzdata")
        if found is not None and found.origin:
            os.environ["TZDIR"] = os.path.join(os.path.dirname(found.origin), "zoneinfo")
    return pyarrow.orc.ORCFile(source)


def _check_times(times: Any, path: str) -> None:
    for item in times:
        if item is None or not _within(item):
            raise RefusedError(
                f"{path} has times before 1678 or after 2261, which cannot be read from ORC files"
            )


def _within(times: Times) -> bool:
    if not times.values:
        return True
    if times.low is None or times.high is None:
        return False
    return -MOST_MILLIS <= times.low <= times.high <= MOST_MILLIS


def _parts(kind: pa.DataType) -> int:
    """Return how many columns a type has in ORC: itself and all its parts."""
    if pa.types.is_map(kind):
        return 1 + _parts(kind.key_type) + _parts(kind.item_type)
    if pa.types.is_list(kind):
        return 1 + _parts(kind.value_type)
    if pa.types.is_nested(kind):
        return 1 + sum(_parts(kind.field(at).type) for at in range(kind.num_fields))
    return 1


def _width(kind: pa.DataType) -> int:
    """Return how many bytes a value takes at least."""
    if pa.types.is_struct(kind):
        return sum(_width(item.type) for item in kind)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 4
    return max(int(kind.bit_width) // 8, 1)
