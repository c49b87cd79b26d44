"""The ranges of live files in the sort columns, by the bounds in their entries, and how deep they overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import BinaryType, DoubleType, FloatType, StringType

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.data.columns.metrics import Mode, modes
from lake.core.data.sorting.overlaps import Ranges
from lake.core.maintain.compaction.facts import DepthFacts
from lake.core.spec.types.bounds import bound_array, comparable, count_array
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.spec.types.transforms import transformed_values

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortField

# Beyond the ranks of values: NaN, NULL, and the ends of a range that is cut at an earlier column.
_NAN, _NULL, _END = 2**61, 2**62, 2**63 - 1
_EACH_BYTE = [bytes([number]) for number in range(256)]


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The ranges of some files of one partition spec; those of different partitions do not overlap.

    Args:
        known: the places of the files whose ranges are known.
        ranges: their ranges, in the order of partitions and then of the sort columns.
        partitions: a number for the partition of each of them, from 0 on.
    """

    known: Int64s
    ranges: Ranges
    partitions: Int64s


def file_ranges(
    entries: pa.Table, fields: Sequence[SortField], schema: Schema, properties: Mapping[str, str]
) -> FileRanges | None:
    """Return the ranges of files; None if bounds do not show them for the first column of the order.

    A file that has one value of a column is compared by the next column. NULL is a value at its place in the order.
    NaN is one only if a file has no other value. Bounds of texts and bytes are compared up to the place before the
    one at which they may be cut, so files that share only the beginning of a text do not overlap. So no range is
    longer than that of the rows, and files of rows in order do not overlap.

    Args:
        entries: the entries, with the columns for bounds and ``partition``.
        fields: the sort order.
        schema: the schema of the table.
        properties: the properties of the table; they say which bounds new files have.

    Raises:
        InvalidRequestError: a property is not allowed.
    """
    kept = modes(schema, properties)
    columns = list(_columns(entries, fields, schema, kept))
    if not columns:
        return None
    known = np.flatnonzero(columns[0].known)
    codes = partition_codes([entries["partition"]])[0][known]
    partitions = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    low, high = _keys([column.take(known) for column in columns])
    ranks = _ranks(
        [
            np.concatenate([partitions, partitions]),
            *map(np.concatenate, zip(low, high, strict=True)),
        ]
    )
    return FileRanges(known, Ranges(ranks[: len(known)], ranks[len(known) :]), partitions)


def depth_facts(depths: Int64s, weights: Int64s | None = None) -> DepthFacts:
    """Return the average and the greatest of some depths.

    Args:
        depths: how many files contain the place where a file begins.
        weights: how many files each is for; None for one.
    """
    average = float(np.average(depths, weights=weights)) if len(depths) else 0.0
    return DepthFacts(average=round(average, 2), worst=int(depths.max(initial=0)))


class _Column(NamedTuple):
    """The values of files in one sort column, as numbers in its order.

    Args:
        low: the least value.
        high: the greatest value.
        known: whether both are known.
        exact: whether equal bounds are of equal rows. Zeros of both signs have a place of their own in an order, and
            bounds that do not distinguish them. Texts may differ after the part that is compared.
    """

    low: Int64s
    high: Int64s
    known: Mask
    exact: Mask

    def take(self, places: Int64s) -> _Column:
        """Return the values of some files."""
        return _Column(self.low[places], self.high[places], self.known[places], self.exact[places])


def _columns(
    entries: pa.Table, fields: Sequence[SortField], schema: Schema, kept: Mapping[int, Mode]
) -> Iterator[_Column]:
    """Yield the sort columns up to the first one whose order the bounds do not show."""
    for field in fields:
        if isinstance(field.transform, VoidTransform):
            continue
        mode = kept.get(field.source_id)
        if isinstance(field.transform, BucketTransform) or mode is None or not mode.bounds:
            return
        yield _column(entries, field, schema, mode.length)


def _column(entries: pa.Table, field: SortField, schema: Schema, length: int | None) -> _Column:
    column, kind = field.source_id, schema.find_type(field.source_id)
    whole = bound_array(entries, "lower_bounds", column, kind)
    upper = bound_array(entries, "upper_bounds", column, kind)
    exact = np.ones(entries.num_rows, np.bool_)
    lower = whole
    if length is not None and isinstance(kind, StringType | BinaryType):
        lower, shorter = _shortened(whole, upper, kind, length)
        exact = _true(pc.and_(pc.equal(whole, upper), pc.equal(whole, lower)))
        upper = shorter
    bounds = [
        comparable(
            transformed_values(bound, kind, field.transform), field.transform.result_type(kind)
        )
        for bound in (lower, upper)
    ]
    values, valid = _numbers(pa.concat_arrays(bounds))
    count = entries.num_rows
    known = valid[:count] & valid[count:]
    low, high = values[:count], np.maximum(*np.split(values, 2))
    rows = one_array(entries["record_count"])
    nulls = pc.fill_null(count_array(entries, "null_value_counts", column), 0)
    nans = pc.fill_null(count_array(entries, "nan_value_counts", column), 0)
    if isinstance(kind, FloatType | DoubleType):
        exact = ~_true(pc.equal(bounds[0], 0.0))
        only_nan = _true(pc.and_(pc.greater(nans, 0), pc.equal(pc.add(nulls, nans), rows)))
        low[only_nan & ~known] = high[only_nan & ~known] = _NAN
        high[_true(pc.greater(nans, 0)) & known] = _NAN
        known |= only_nan
    if field.direction == SortDirection.DESC:
        low, high = -high, -low
    null = -_NULL if field.null_order == NullOrder.NULLS_FIRST else _NULL
    only_null = _true(pc.equal(nulls, rows)) & _true(pc.greater(rows, 0))
    low[only_null] = high[only_null] = null
    some = _true(pc.greater(nulls, 0)) & known
    end = low if null < 0 else high
    end[some] = null
    return _Column(low, high, known | only_null, exact)


def _shortened(
    lower: pa.Array, upper: pa.Array, kind: Any, length: int
) -> tuple[pa.Array, pa.Array]:
    """Return bounds of texts and bytes without what may come from their truncation."""
    if isinstance(kind, StringType):
        # The character at which a text is cut is increased; it is the last one that a text can have at most.
        return tuple(pc.utf8_slice_codeunits(item, 0, length - 1) for item in (lower, upper))
    longest = max(pc.max(pc.binary_length(item)).as_py() or 0 for item in (lower, upper))
    # A byte of 255 cannot be increased: then the bound is shorter, and the byte before it is increased.
    is_whole = pc.greater_equal(pc.binary_length(upper), length)
    upper = pc.if_else(is_whole, upper, _just_below(upper, longest))
    return tuple(pc.binary_slice(item, 0, length - 1) for item in (lower, upper))


def _just_below(values: pa.Array, longest: int) -> pa.Array:
    """Return the greatest bytes below each value, up to a length; a value that ends with 0 is not changed."""
    last = pc.index_in(
        pc.binary_slice(values, -1, None), value_set=pa.array(_EACH_BYTE, pa.binary())
    )
    ends = pa.array(
        [_EACH_BYTE[0], *(byte + b"\xff" * longest for byte in _EACH_BYTE[:-1])], pa.binary()
    )
    joined = pc.binary_join_element_wise(pc.binary_slice(values, 0, -1), ends.take(last), b"")
    return pc.coalesce(joined, values)


def _numbers(values: pa.Array) -> tuple[Int64s, Mask]:
    """Return numbers in the order of values, and which values there are."""
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    valid = _true(pc.is_valid(values))
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    return ranks.to_numpy().astype(np.int64), valid


def _true(mask: Any) -> Mask:
    found: Mask = pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False)
    return found


def _keys(columns: Sequence[_Column]) -> tuple[list[Int64s], list[Int64s]]:
    """Return the parts of the keys of both bounds.

    A range ends with the first column in which a file has several values: its lower bound is just above the least
    value, its upper bound just below the greatest one, so that ranges which share only this value do not overlap.
    """
    count = len(columns[0].low)
    low: list[Int64s] = []
    high: list[Int64s] = []
    one = np.ones(count, np.bool_)
    several = np.zeros(count, np.bool_)
    for column in columns:
        # A file with one value of the columns before, and unknown values of this one, has a range of one key.
        is_known = one & column.known
        low.append(np.where(is_known, column.low, np.where(several, _END, -_END)))
        high.append(np.where(is_known, column.high, -_END))
        several |= is_known & (column.low < column.high)
        one = is_known & column.exact & (column.low == column.high)
    low.append(several.astype(np.int64))
    high.append(-several.astype(np.int64))
    return low, high


def _ranks(parts: Sequence[npt.NDArray[Any]]) -> Int64s:
    """Return ranks of keys that are compared part by part; equal keys have equal ranks."""
    order = np.lexsort(parts[::-1])
    new = np.zeros(len(order), np.bool_)
    for part in parts:
        ordered = part[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new)
    return ranks
