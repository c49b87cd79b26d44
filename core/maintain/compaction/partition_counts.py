"""Count the partitions to which files of older specs may move, by their partitions, bounds and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import BucketTransform, TruncateTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType

from lake.core.base.arrow import Mask, one_array
from lake.core.spec.types.bounds import bound_array, count_array
from lake.core.spec.types.transforms import transformed_values

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema

Integers = npt.NDArray[np.int64]
# Wider ranges are not counted, so that no sum overflows.
_WIDEST = 2**40


class _Values(NamedTuple):
    """The values that the rows of each file may have in one partition field.

    Args:
        low: the least value, as a number.
        high: the greatest value; smaller than ``low`` if all values are NULL.
        ranged: whether the values are numbers between these two; otherwise at most these two are known.
        null: whether a value may be NULL.
    """

    low: Integers
    high: Integers
    ranged: Mask
    null: Mask

    def take(self, rows: Integers) -> _Values:
        """Return the values of some files."""
        return _Values(self.low[rows], self.high[rows], self.ranged[rows], self.null[rows])

    def sizes(self) -> Integers:
        """Return the expected number of values of each file."""
        span: Integers = np.maximum(self.high - self.low + 1, 0)
        return np.where(self.ranged, span, 1 + (self.low != self.high)) + self.null

    def union(self) -> int:
        """Return the expected number of values of all files together."""
        filled, ends = self.ranged & (self.low <= self.high), ~self.ranged
        low = np.concatenate([self.low[filled], self.low[ends], self.high[ends]])
        high = np.concatenate([self.high[filled], self.low[ends], self.high[ends]])
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
        seen = np.concatenate([low[:1] - 1, np.maximum.accumulate(high)[:-1]])
        new = np.maximum(high - np.maximum(low, seen + 1) + 1, 0)
        return int(new.sum()) + bool(self.null.any())


class PartitionCounts:
    """How many partitions of a spec groups of files may become.

    The number is exact if the files' partitions or bounds determine it. Otherwise it is an estimate. It assumes that
    each whole number, date or time of a range occurs, that all buckets are used, and that the only other values are
    the bounds of the files.

    Args:
        by_spec: live files by spec id, with the columns that filters need.
        spec: the spec to which they move.
        specs: the specs of the table.
        schema: the columns of the table.
    """

    def __init__(
        self,
        by_spec: Mapping[int, pa.Table],
        spec: PartitionSpec,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
    ) -> None:
        rows = [pc.fill_null(entries["record_count"], 0).to_numpy() for entries in by_spec.values()]
        self._rows: Integers = np.concatenate(rows).astype(np.int64)
        fields = [item for item in spec.fields if not isinstance(item.transform, VoidTransform)]
        self._fields = [_field_values(by_spec, item, specs, schema) for item in fields]

    def expected(self, files: Integers) -> int:
        """Return the number of partitions of some files, by their index among all files."""
        each = self._rows[files]
        product = np.ones(len(files))
        together = 1.0
        for field in self._fields:
            own = field.take(files)
            product *= own.sizes()
            together *= own.union()
        return int(min(np.minimum(each, product).sum(), together))


def _field_values(
    by_spec: Mapping[int, pa.Table],
    field: PartitionField,
    specs: Mapping[int, PartitionSpec],
    schema: Schema,
) -> _Values:
    lows, highs, nulls, known_null = [], [], [], []
    for spec_id, entries in by_spec.items():
        values = _partition_values(entries, specs[spec_id], field)
        if values is None:
            low, high, null, no_value = _bounded_values(entries, field, schema)
        else:
            low = high = values
            null = no_value = np.asarray(pc.is_null(values))
        lows.append(low)
        highs.append(high)
        nulls.append(null)
        known_null.append(no_value)
    low, high, ranged = _numbers(lows, highs, field)
    if isinstance(field.transform, BucketTransform):
        low = np.where(ranged, low, 0)
        high = np.where(ranged, high, field.transform.num_buckets - 1)
        ranged = np.ones(len(low), np.bool_)
    empty = np.concatenate(known_null)
    low, high = np.where(empty, 0, low), np.where(empty, -1, high)
    return _Values(low, high, ranged | empty, np.concatenate(nulls) | empty)


def _partition_values(
    entries: pa.Table, spec: PartitionSpec, field: PartitionField
) -> pa.Array | None:
    """Return the values of a field of another spec with the same source and transform; None if there is none."""
    for own in spec.fields:
        if own.source_id == field.source_id and own.transform == field.transform:
            return pc.struct_field(one_array(entries["partition"]), str(own.field_id))
    return None


def _bounded_values(
    entries: pa.Table, field: PartitionField, schema: Schema
) -> tuple[pa.Array, pa.Array, Mask, Mask]:
    """Return the least and the greatest value by the bounds, and which files may have NULL, or nothing else."""
    kind = schema.find_type(field.source_id)
    lower = bound_array(entries, "lower_bounds", field.source_id, kind)
    upper = bound_array(entries, "upper_bounds", field.source_id, kind)
    nulls = count_array(entries, "null_value_counts", field.source_id)
    null = np.asarray(pc.fill_null(pc.not_equal(nulls, 0), fill_value=True))
    rows = one_array(entries["record_count"])
    no_value = np.asarray(pc.fill_null(pc.equal(nulls, rows), fill_value=False))
    if schema.find_field(field.source_id).required:
        null = no_value = np.zeros(len(rows), np.bool_)
    if isinstance(kind, FloatType | DoubleType):
        # Bounds do not contain NaN, which has a partition of its own.
        lower = upper = pa.nulls(len(rows), lower.type)
    if isinstance(field.transform, BucketTransform):
        same = pc.equal(lower, upper)
        lower = upper = pc.if_else(same, lower, pa.scalar(None, lower.type))
    low, high = (transformed_values(item, kind, field.transform) for item in (lower, upper))
    return low, high, null, no_value


def _numbers(
    lows: list[pa.Array], highs: list[pa.Array], field: PartitionField
) -> tuple[Integers, Integers, Mask]:
    """Return values as numbers, 0 if unknown, and where they limit a range: neighbours in order, or equal values."""
    arrays = [_integers(item) for item in (*lows, *highs)]
    count = sum(map(len, lows))
    if any(item.type != arrays[0].type for item in arrays):
        return np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    values = pa.concat_arrays(arrays)
    valid = np.asarray(pc.is_valid(values))
    is_ordered = pa.types.is_int64(values.type)
    if not is_ordered:
        values = values.dictionary_encode().indices.cast(pa.int64())
    numbers: Integers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    if is_ordered and isinstance(field.transform, TruncateTransform):
        numbers = np.floor_divide(numbers, field.transform.width)
    low, high = numbers[:count], numbers[count:]
    known = valid[:count] & valid[count:]
    low, high = np.where(known, low, 0), np.where(known, high, 0)
    if is_ordered:
        # As floats, since the difference may have 65 bits.
        ranged = known & (low <= high) & (high.astype(float) - low.astype(float) < _WIDEST)
    else:
        ranged = known & (low == high)
    return low, high, ranged


def _integers(values: pa.Array) -> pa.Array:
    """Return whole numbers, dates and times as 64-bit integers, and other values as they are."""
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int64())
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values
