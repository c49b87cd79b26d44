"""The figures that a manifest keeps of columns, gathered while their rows are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    StringType,
    UUIDType,
)

from lake.core.rows.metrics import Leaf, Metrics, Mode, encode_ordered

_BYTES = (BinaryType, FixedType, UUIDType)


class ColumnMetrics:
    """Counts, and the least and greatest values, of columns that do not repeat in a row."""

    def __init__(self, columns: Sequence[Leaf], modes: Mapping[int, Mode]) -> None:
        self._columns = [_Column(leaf, modes[leaf.field_id]) for leaf in columns]

    def add(self, table: pa.Table) -> None:
        """Look at rows."""
        for column in self._columns:
            if column.mode.counts:
                column.add(_leaf_of(table, column.leaf))

    def metrics(self) -> Metrics:
        """Return what was seen, as the columns' modes want it."""
        found = Metrics()
        for column in self._columns:
            column.tell(found)
        return found


class _Column:
    """What was seen of one column."""

    def __init__(self, leaf: Leaf, mode: Mode) -> None:
        self.leaf = leaf
        self.mode = mode
        self._is_float = isinstance(leaf.kind, FloatType | DoubleType)
        self._bounded = mode.bounds and not isinstance(leaf.kind, _BYTES)
        self._values = self._nulls = self._nans = 0
        self._low: Any = None
        self._high: Any = None

    def add(self, column: pa.ChunkedArray) -> None:
        """Look at values."""
        self._values += len(column)
        self._nulls += column.null_count
        if self._is_float:
            nan = pc.is_nan(column)
            self._nans += pc.sum(nan).as_py() or 0
            column = column.filter(pc.invert(nan))
        if self._bounded:
            self._widen(column)

    def _widen(self, column: pa.ChunkedArray) -> None:
        ends = pc.min_max(_comparable(column))
        low, high = _ordered(ends["min"], self.leaf), _ordered(ends["max"], self.leaf)
        if low is not None:
            self._low = low if self._low is None else min(low, self._low)
            self._high = high if self._high is None else max(high, self._high)

    def tell(self, found: Metrics) -> None:
        """Add what was seen to a file's metrics."""
        if not self.mode.counts:
            return
        number = self.leaf.field_id
        found.value_counts[number] = self._values
        found.null_value_counts[number] = self._nulls
        if self._is_float:
            found.nan_value_counts[number] = self._nans
        if self._low is None:
            return
        low, high, length = self._low, self._high, self.mode.length
        if self._is_float:
            # Whichever zero was seen, both lie within.
            low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        lower = encode_ordered(low, self.leaf.kind, length, upper=False)
        upper = encode_ordered(high, self.leaf.kind, length, upper=True)
        if lower is not None:
            found.lower_bounds[number] = lower
        if upper is not None:
            found.upper_bounds[number] = upper


def _leaf_of(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    column = table.column(leaf.path[0])
    for name in leaf.path[1:]:
        column = pc.struct_field(column, name)
    return column


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with types that can be compared: numbers for times, bytes for texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_temporal(kind) else column


def _ordered(value: Any, leaf: Leaf) -> Any:
    plain = value.as_py()
    if plain is None:
        return None
    if isinstance(leaf.kind, DecimalType):
        return int(plain.scaleb(leaf.kind.scale))
    return plain.encode() if isinstance(leaf.kind, StringType) else plain
