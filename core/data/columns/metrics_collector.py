"""Collect column metrics for manifest entries while rows are written.

Metrics are collected for the columns for which Iceberg Java does so for ORC (OrcMetrics): structs, lists and maps
too, but not the contents of lists and maps, and no bounds of binary values. Unlike there, the fields of a NULL
struct count as NULL, because otherwise Java's own filters lose these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from lake.core.base.arrow import nested_field
from lake.core.data.columns.metrics import Metrics, Mode, container_mode, encode_ordered, modes

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_NO_BOUNDS = (BinaryType, FixedType, UUIDType)


@dataclass(frozen=True, slots=True)
class Counted:
    """A column with metrics; `path` consists of names."""

    field_id: int
    kind: IcebergType
    path: tuple[str, ...]
    mode: Mode


def counted_columns(schema: Schema, properties: Mapping[str, str]) -> list[Counted]:
    """Return the columns for which a table's properties require metrics.

    Raises:
        InvalidRequestError: the value of a property is not a mode.
    """
    of_leaves = modes(schema, properties)
    found = []
    for path, item in nested_columns(schema):
        if item.field_type.is_primitive:
            mode = of_leaves[item.field_id]
        else:
            mode = container_mode(schema, item.field_id, properties)
        if mode.counts:
            found.append(Counted(item.field_id, item.field_type, path, mode))
    return found


def nested_columns(schema: Schema) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    """Yield columns and the fields of structs, each with its path of names; not what lists and maps contain."""
    yield from _columns(schema.fields, ())


def _columns(
    fields: tuple[NestedField, ...], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    for item in fields:
        path = (*above, item.name)
        yield path, item
        if isinstance(item.field_type, StructType):
            yield from _columns(item.field_type.fields, path)


class ColumnMetrics:
    """Collects counts, minima and maxima of columns."""

    def __init__(self, columns: list[Counted]) -> None:
        self._columns = [_Column(column) for column in columns]

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        for column in self._columns:
            top, *below = column.column.path
            column.add(nested_field(table.column(top), below))

    def metrics(self) -> Metrics:
        """Return the metrics according to the columns' modes."""
        found = Metrics()
        for column in self._columns:
            column.add_to(found)
        return found


class _Column:
    """The metrics of one column."""

    def __init__(self, column: Counted) -> None:
        self.column = column
        self._is_float = isinstance(column.kind, FloatType | DoubleType)
        self._bounded = column.mode.bounds and not isinstance(column.kind, _NO_BOUNDS)
        self._values = self._nulls = self._nans = 0
        self._low: Any = None
        self._high: Any = None

    def add(self, column: pa.ChunkedArray) -> None:
        """Add values."""
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
        low, high = (_ordered(ends[end].as_py(), self.column.kind) for end in ("min", "max"))
        if low is not None:
            self._low = low if self._low is None else min(low, self._low)
            self._high = high if self._high is None else max(high, self._high)

    def add_to(self, found: Metrics) -> None:
        """Add the metrics of this column to a file's metrics."""
        number = self.column.field_id
        found.value_counts[number] = self._values
        found.null_value_counts[number] = self._nulls
        if self._is_float:
            found.nan_value_counts[number] = self._nans
        if self._low is None:
            return
        low, high, length = self._low, self._high, self.column.mode.length
        if self._is_float:
            # Both zeros must be within the bounds.
            low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        lower = encode_ordered(low, self.column.kind, length, upper=False)
        upper = encode_ordered(high, self.column.kind, length, upper=True)
        if lower is not None:
            found.lower_bounds[number] = lower
        if upper is not None:
            found.upper_bounds[number] = upper


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with a type that Arrow's min_max supports: numbers for times."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_temporal(column.type) else column


def _ordered(value: Any, kind: IcebergType) -> Any:
    """Return a value in the form that `encode_ordered` takes."""
    if value is None:
        return None
    if isinstance(kind, DecimalType):
        # Arithmetic would round to the context's precision.
        sign, digits, _ = value.as_tuple()
        return int("".join(map(str, digits))) * (-1 if sign else 1)
    return value.encode() if isinstance(kind, StringType) else value
