"""Column metrics of a Parquet file for its manifest entry, read from its footer.

Bounds follow the table's ``write.metadata.metrics.*`` modes. NaN values are counted while writing, because the
footer does not count them. Source: Iceberg's MetricsConfig and ParquetMetrics; spec appendix D (single values).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lake.core.base.arrow import nested_field
from lake.core.spec.properties.table_properties import (
    METRICS_DEFAULT,
    METRICS_INFERRED,
    METRICS_OF_COLUMN,
)
from lake.core.spec.types.bounds import truncate_lower, truncate_upper

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_LENGTH = re.compile(r"truncate\(([0-9]+)\)")
_DEFAULT_LENGTH = 16
_LONGS = (
    LongType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
)


@dataclass(frozen=True, slots=True)
class Mode:
    """The metrics to keep of a column: counts, bounds, and the length to truncate bounds to (None: unlimited)."""

    counts: bool
    bounds: bool
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive column of a file: field id, type, path of names, and whether it is repeated in a row."""

    field_id: int
    kind: PrimitiveType
    path: tuple[str, ...]
    repeated: bool


@dataclass(slots=True)
class Metrics:
    """Metrics by field id, as in `lake.core.table.manifests.data_files.DataFile`."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)

    def of_entry(self) -> dict[str, Any]:
        """Return the metrics by the names of the fields of `DataFile`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def leaves(schema: Schema) -> list[Leaf]:
    """Return the primitive columns in the order in which Parquet stores them."""
    return list(_leaves(schema.fields, (), repeated=False))


def _leaves(
    fields: tuple[NestedField, ...], path: tuple[str, ...], *, repeated: bool
) -> Iterator[Leaf]:
    for item in fields:
        here, kind = (*path, item.name), item.field_type
        if isinstance(kind, StructType):
            yield from _leaves(kind.fields, here, repeated=repeated)
        elif isinstance(kind, ListType):
            yield from _leaves((kind.element_field,), here, repeated=True)
        elif isinstance(kind, MapType):
            yield from _leaves((kind.key_field, kind.value_field), here, repeated=True)
        elif isinstance(kind, PrimitiveType):
            yield Leaf(item.field_id, kind, here, repeated)


def modes(schema: Schema, properties: Mapping[str, str]) -> dict[int, Mode]:
    """Return the mode of each primitive column.

    Raises:
        InvalidRequestError: the value of a property is not a mode.
    """
    default = METRICS_DEFAULT.of(properties)
    found = {}
    for position, leaf in enumerate(leaves(schema)):
        name = schema.find_column_name(leaf.field_id) or ".".join(leaf.path)
        text = METRICS_OF_COLUMN.of(properties, name) or default
        found[leaf.field_id] = _mode(text or _inferred(position, properties))
    return found


def container_mode(schema: Schema, field_id: int, properties: Mapping[str, str]) -> Mode:
    """Return the mode of a struct, list or map, which has only counts.

    Raises:
        InvalidRequestError: the value of a property is not a mode.
    """
    name = schema.find_column_name(field_id)
    text = METRICS_OF_COLUMN.of(properties, name) if name else None
    text = text or METRICS_DEFAULT.of(properties)
    mode = _mode(text or _inferred(len(leaves(schema)) - 1, properties))
    return Mode(counts=mode.counts, bounds=False)


def _inferred(position: int, properties: Mapping[str, str]) -> str:
    """Return the mode of a primitive column without a property, by its position."""
    inferred = METRICS_INFERRED.of(properties)
    return f"truncate({_DEFAULT_LENGTH})" if position < inferred else "none"


def _mode(text: str) -> Mode:
    if text == "none":
        return Mode(counts=False, bounds=False)
    if text == "counts":
        return Mode(counts=True, bounds=False)
    truncated = _LENGTH.fullmatch(text)
    return Mode(counts=True, bounds=True, length=int(truncated[1]) if truncated else None)


def footer_metrics(
    footer: Any, columns: list[Leaf], chosen: Mapping[int, Mode], nan_counts: Mapping[int, int]
) -> Metrics:
    """Return the metrics of a file whose Parquet columns are the given leaves, in order."""
    metrics = Metrics()
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for position, leaf in enumerate(columns):
        mode = chosen[leaf.field_id]
        if not mode.counts:
            continue
        chunks = [group.column(position) for group in groups]
        metrics.column_sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        metrics.value_counts[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
        nulls = [_null_count(chunk) for chunk in chunks]
        if None not in nulls:
            metrics.null_value_counts[leaf.field_id] = sum(nulls)  # type: ignore[arg-type]
        if leaf.field_id in nan_counts:
            metrics.nan_value_counts[leaf.field_id] = nan_counts[leaf.field_id]
        if mode.bounds and not leaf.repeated:
            _add_bounds(metrics, leaf, chunks, mode)
    return metrics


def _null_count(chunk: Any) -> int | None:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return None
    return int(statistics.null_count)


def _add_bounds(metrics: Metrics, leaf: Leaf, chunks: list[Any], mode: Mode) -> None:
    lows, highs = [], []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            if statistics is not None and statistics.null_count == chunk.num_values:
                continue  # only NULLs: the bounds of the other chunks suffice
            return
        lows.append(ordered_value(statistics.min_raw, leaf.kind))
        highs.append(ordered_value(statistics.max_raw, leaf.kind))
    if not lows or _unordered([*lows, *highs]):
        return
    low, high = min(lows), max(highs)
    if isinstance(low, float):
        # A zero as a minimum or maximum of Parquet may have either sign; Iceberg orders -0.0 before 0.0.
        low, high = low or -0.0, high or 0.0
    lower = encode_ordered(low, leaf.kind, mode.length, upper=False)
    upper = encode_ordered(high, leaf.kind, mode.length, upper=True)
    if lower is not None:
        metrics.lower_bounds[leaf.field_id] = lower
    if upper is not None:
        metrics.upper_bounds[leaf.field_id] = upper


def _unordered(values: list[Any]) -> bool:
    """Whether a bound of a foreign file is NaN, which does not bound the other values."""
    return any(isinstance(value, float) and isnan(value) for value in values)


def ordered_value(raw: Any, kind: IcebergType) -> Any:
    """Return a footer's raw value in a form that compares in Iceberg's order."""
    if isinstance(kind, DecimalType):
        return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    if isinstance(kind, StringType):
        return raw.encode() if isinstance(raw, str) else bytes(raw)
    return raw


def encode_ordered(
    value: Any, kind: IcebergType, length: int | None, *, upper: bool
) -> bytes | None:
    """Return a bound as a single value, truncated to ``length`` characters or bytes; None for no bound."""
    if isinstance(kind, StringType):
        return _text_bound(value, length, upper=upper)
    if isinstance(kind, BinaryType):
        shorten = truncate_upper if upper else truncate_lower
        short = bytes(value) if length is None or len(value) <= length else shorten(value, length)
        return short if short is None else bytes(short)
    if isinstance(kind, FixedType | UUIDType):
        return bytes(value)
    if isinstance(kind, DecimalType):
        size = (value + (value < 0)).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return _number_bound(value, kind)


def _text_bound(value: bytes, length: int | None, *, upper: bool) -> bytes | None:
    if length is None:
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        # Some writers store invalid text; a prefix of it could end inside a character.
        return None
    if len(text) <= length:
        return value
    short = truncate_upper(text, length) if upper else truncate_lower(text, length)
    return None if short is None else str(short).encode()


def _number_bound(value: Any, kind: IcebergType) -> bytes | None:
    if isinstance(kind, BooleanType):
        return b"\x01" if value else b"\x00"
    if isinstance(kind, IntegerType | DateType):
        return struct.pack("<i", value)
    if isinstance(kind, _LONGS):
        return struct.pack("<q", value)
    if isinstance(kind, FloatType):
        return struct.pack("<f", value)
    if isinstance(kind, DoubleType):
        return struct.pack("<d", value)
    return None


class NanCounter:
    """Counts NaN per float column while rows are written."""

    def __init__(self, columns: list[Leaf]) -> None:
        self._leaves = [
            leaf
            for leaf in columns
            if isinstance(leaf.kind, FloatType | DoubleType) and not leaf.repeated
        ]
        self.counts = {leaf.field_id: 0 for leaf in self._leaves}

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Count the NaN values of a batch."""
        for leaf in self._leaves:
            column = nested_field(batch.column(leaf.path[0]), leaf.path[1:])
            self.counts[leaf.field_id] += pc.sum(pc.is_nan(column)).as_py() or 0
