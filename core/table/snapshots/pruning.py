"""Prune manifests and files by a filter, over whole columns at once.

Three kinds of evidence are evaluated for each predicate: a file's partition tuple (exact values of
transforms), its column metrics, and a manifest's partition summary (both ranges). If evidence is
missing or unreadable, the file is kept. Filters have the semantics of `lake.core.spec.expressions.filters.row_mask`:
NULLs match only ``is null``, and a file that contains only NULLs is pruned even for ``!=``.
Rules: https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    BooleanExpression,
    BoundPredicate,
)
from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TimeTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType

from lake.core.base.arrow import one_array
from lake.core.spec.expressions.filters import fold
from lake.core.spec.expressions.like import BoundLike, BoundNotLike, literal_prefix
from lake.core.spec.expressions.predicates import (
    BOUND_CLASSES,
    OPPOSITES,
    Condition,
    condition,
    matches,
)
from lake.core.spec.types.bounds import (
    bound_array,
    comparable,
    count_array,
    decode_bounds,
    prefix_end,
)
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

Mask = Any  # a pyarrow.BooleanArray without NULLs

# The columns of entries that a filter needs beside the partition. They are most of a manifest's bytes.
FILTER_COLUMNS = (
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)

# The exceptions of PyIceberg's transforms and Arrow's scalars for literals that are out of range.
UNUSABLE = (ValueError, TypeError, ArithmeticError, pa.ArrowException)


# Types that numpy cannot order, and Arrow can search.
_SEARCHABLE = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
# A binary search costs about as much as to rank this many values.
_SEARCHED_VALUES = 100


class FileChoice(Protocol):
    """Chooses the manifests and files that may contain wanted rows."""

    def prune_manifests(self, manifests: pa.Table, metadata: TableMetadata) -> pa.Table:
        """Return the data manifests that may contain files with such rows."""

    def prune_files(self, entries: pa.Table, spec: PartitionSpec) -> pa.Table:
        """Return those of some data files of one spec that may contain such rows."""


def prune_manifests(
    manifests: pa.Table, metadata: TableMetadata, bound: BooleanExpression, *, schema: Schema
) -> pa.Table:
    """Return the manifests that may contain files with matching rows, by their partition summaries.

    Args:
        manifests: rows of a manifest list, with any specs.
        metadata: the metadata with the specs; manifests of an unknown spec are kept.
        bound: a filter from `bind_filter`.
        schema: the schema to which the filter is bound.
    """
    spec_ids = manifests.column("partition_spec_id").to_numpy()
    kept = np.ones(manifests.num_rows, dtype=np.bool_)
    for spec_id, spec in metadata.specs().items():
        rows = np.flatnonzero(spec_ids == spec_id)
        if len(rows):
            partitions = manifests.column("partitions").take(pa.array(rows))
            summaries = ManifestStatistics(one_array(partitions), spec, schema)
            kept[rows] = _fold(bound, summaries.may_match, len(rows)).to_numpy(zero_copy_only=False)
    return manifests.filter(pa.array(kept))


def prune_files(
    entries: pa.Table, spec: PartitionSpec, schema: Schema, bound: BooleanExpression
) -> pa.BooleanArray:
    """Return, for each file of one spec, whether it may contain rows that match a bound filter.

    A file without rows contains none. Delete files are pruned by their partition alone: their metrics
    describe the deletes, not the rows to which they apply.
    """
    files = FileStatistics(entries, spec, schema)
    kept = _fold(bound, files.may_match, entries.num_rows)
    rows = one_array(entries.column("record_count"))
    return pc.and_(kept, pc.not_equal(rows, 0).fill_null(fill_value=True))


def strict_files(
    entries: pa.Table, spec: PartitionSpec, schema: Schema, bound: BooleanExpression
) -> pa.BooleanArray:
    """Return, for each file of one spec, whether every row certainly matches a bound filter.

    Never true for delete files. Deletes only remove rows, so the result is valid with them too.
    """
    files = FileStatistics(entries, spec, schema)
    sure = _fold(bound, files.all_match, entries.num_rows)
    counted = pc.greater_equal(one_array(entries.column("record_count")), 0).fill_null(
        fill_value=False
    )
    return pc.and_(pc.and_(sure, counted), files.is_data)


def _fold(bound: BooleanExpression, leaf: Callable[[BoundPredicate], Mask], length: int) -> Mask:
    return fold(
        bound,
        leaf,
        constant=lambda value: _constant(length, value=value),
        both=pc.and_,
        either=pc.or_,
    )


class FileStatistics:
    """Evidence about the files of one spec."""

    def __init__(self, entries: pa.Table, spec: PartitionSpec, schema: Schema) -> None:
        self.entries = entries
        self.spec = spec
        self.schema = schema
        self.top_level = {field.field_id for field in schema.fields}
        self.is_data = pc.equal(one_array(entries.column("content")), DATA)
        self.ranges: dict[int, Ranges] = {}

    def may_match(self, predicate: BoundPredicate) -> Mask:
        """Return which files may contain rows that match a predicate."""
        by_metrics = _may_match(self._metrics(predicate), condition(predicate))
        mask = pc.or_(by_metrics, pc.invert(self.is_data))
        for field, asked in _projections(self.spec, predicate, strict=False):
            mask = pc.and_(mask, self._partition_mask(field, asked, unknown=True))
        return mask

    def all_match(self, predicate: BoundPredicate) -> Mask:
        """Return which files certainly contain only rows that match a predicate."""
        mask = _all_match(self._metrics(predicate), condition(predicate))
        for field, asked in _projections(self.spec, predicate, strict=True):
            mask = pc.or_(mask, self._partition_mask(field, asked, unknown=False))
        return mask

    def _partition_mask(self, field: PartitionField, asked: Condition, *, unknown: bool) -> Mask:
        try:
            values = self.partition_values(field)
            if values is not None:
                return matches(values, asked)
        except UNUSABLE:
            pass
        return _constant(self.entries.num_rows, value=unknown)

    def partition_values(self, field: PartitionField) -> pa.Array | None:
        """Return the files' values of a partition field in `comparable` form; None if they are not known.

        Raises:
            pyarrow.ArrowException: the values do not have the field's type.
        """
        partition = self.entries.column("partition")
        index = partition.type.get_field_index(str(field.field_id))
        if index < 0:
            return None
        values = one_array(pc.struct_field(partition, [index]))
        return comparable(values, partition_field_type(field, self.schema))

    def _metrics(self, predicate: BoundPredicate) -> Ranges:
        field = predicate.term.ref().field
        return self.ranges_of(field.field_id, field.field_type)

    def ranges_of(self, field_id: int, type_: IcebergType) -> Ranges:
        """Return the statistics of a column."""
        if field_id not in self.ranges:
            self.ranges[field_id] = self._read_metrics(field_id, type_)
        return self.ranges[field_id]

    def _read_metrics(self, field_id: int, type_: IcebergType) -> Ranges:
        values = count_array(self.entries, "value_counts", field_id)
        nulls = count_array(self.entries, "null_value_counts", field_id)
        no_nulls = _certain(pc.equal(nulls, 0))
        if field_id not in self.top_level:
            # ORC counts a nested field only if its parent is not NULL
            rows = one_array(self.entries.column("record_count"))
            no_nulls = pc.and_(no_nulls, _certain(pc.equal(values, rows)))
        lower, upper = _reliable(
            bound_array(self.entries, "lower_bounds", field_id, type_),
            bound_array(self.entries, "upper_bounds", field_id, type_),
            type_,
        )
        ranges = Ranges(
            lower=lower,
            upper=upper,
            no_nulls=no_nulls,
            only_nulls=_all_of(nulls, values),
            no_nans=_constant(self.entries.num_rows, value=True),
            only_nans=_constant(self.entries.num_rows, value=False),
        )
        if not _has_nan(type_):
            return ranges
        nans = count_array(self.entries, "nan_value_counts", field_id)
        return replace(ranges, no_nans=_certain(pc.equal(nans, 0)), only_nans=_all_of(nans, values))


class ManifestStatistics:
    """Evidence about the manifests of one spec: one range per partition field."""

    def __init__(self, partitions: pa.ListArray, spec: PartitionSpec, schema: Schema) -> None:
        self.partitions = partitions
        self.spec = spec
        self.schema = schema

    def may_match(self, predicate: BoundPredicate) -> Mask:
        """Return which manifests may contain files with rows that match a predicate."""
        mask = _constant(len(self.partitions), value=True)
        for field, asked in _projections(self.spec, predicate, strict=False):
            mask = pc.and_(mask, _may_match(self.ranges_of(field), asked))
        return mask

    def ranges_of(self, field: PartitionField) -> Ranges:
        """Return the statistics of a partition field."""
        summary = self._read_summary(self.spec.fields.index(field))
        return _summary_ranges(summary, partition_field_type(field, self.schema))

    def _read_summary(self, position: int) -> pa.StructArray:
        """Return the summaries at a position of the spec; NULL for a manifest with fewer."""
        offsets = self.partitions.offsets.to_numpy()
        chosen = offsets[:-1] + position
        missing = chosen >= offsets[1:]
        missing |= self.partitions.is_null().to_numpy(zero_copy_only=False)
        return self.partitions.values.take(pa.array(chosen, mask=missing))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Statistics of a column's values in each file (or of a partition field's values in each manifest).

    Args:
        lower: not greater than any value, in `comparable` form; NULL if unknown. NaN and NULL do not
            count as values here.
        upper: not less than any value.
        no_nulls: there is certainly no NULL; the other flags likewise. False means unknown.
        empty: there is certainly nothing except NULL and NaN.
    """

    lower: pa.Array
    upper: pa.Array
    no_nulls: Mask
    only_nulls: Mask
    no_nans: Mask
    only_nans: Mask
    empty: Mask | None = None

    @property
    def without_values(self) -> Mask:
        """Where there is certainly nothing except NULL and NaN."""
        only = pc.or_(self.only_nulls, self.only_nans)
        return only if self.empty is None else pc.or_(only, self.empty)

    @property
    def only_values(self) -> Mask:
        """Where there is certainly neither NULL nor NaN."""
        return pc.and_(self.no_nulls, self.no_nans)


def _summary_ranges(summary: pa.StructArray, type_: IcebergType) -> Ranges:
    has_null = pc.struct_field(summary, "contains_null")
    has_nan = pc.struct_field(summary, "contains_nan")
    raw_lower = pc.struct_field(summary, "lower_bound")
    nulls, nans = _certain(has_null), _certain(has_nan)
    no_nans = _certain(pc.invert(has_nan))
    if not _has_nan(type_):
        nans, no_nans = _constant(len(summary), value=False), _constant(len(summary), value=True)
    no_nulls = _certain(pc.invert(has_null))
    # A missing bound means that there is no value; this is trusted if there are NULLs or NaNs.
    empty = pc.and_(raw_lower.is_null(), pc.or_(nulls, nans))
    raw_upper = pc.struct_field(summary, "upper_bound")
    lower, upper = _reliable(
        decode_bounds(raw_lower, type_), decode_bounds(raw_upper, type_), type_
    )
    return Ranges(
        lower=lower,
        upper=upper,
        no_nulls=no_nulls,
        only_nulls=pc.and_(empty, pc.and_(nulls, no_nans)),
        no_nans=no_nans,
        only_nans=pc.and_(empty, pc.and_(nans, no_nulls)),
        empty=empty,
    )


def _may_match(ranges: Ranges, asked: Condition) -> Mask:
    try:
        return pc.invert(_none_match(ranges, asked))
    except UNUSABLE:
        return _constant(len(ranges.lower), value=True)


def _none_match(ranges: Ranges, asked: Condition) -> Mask:
    """Return where a condition is certainly not TRUE for any value."""
    match asked.op:
        case "is-null":
            return ranges.no_nulls
        case "not-null" | "not-eq" | "not-in":
            return ranges.only_nulls
        case "is-nan":
            return pc.or_(ranges.no_nans, ranges.only_nulls)
        case "not-nan":
            return ranges.without_values
        case "not-starts-with" | "not-like":
            positive = replace(asked, op=OPPOSITES[asked.op])
            return pc.or_(ranges.only_nulls, _inside(ranges, positive))
    return pc.or_(ranges.without_values, _outside(ranges, asked))


def _outside(ranges: Ranges, asked: Condition) -> Mask:
    """Return where every value is certainly outside of a positive condition's range."""
    lower, upper = ranges.lower, ranges.upper
    if asked.op == "in":
        return pc.invert(_any_between(asked.values, lower, upper))
    if asked.op == "starts-with":
        return _outside_prefix(ranges, asked.values[0])
    if asked.op == "like":
        return _outside_pattern(ranges, asked)
    if asked.op == "eq":
        wanted = pa.scalar(asked.values[0], lower.type)
        return pc.or_(_certain(pc.greater(lower, wanted)), _certain(pc.less(upper, wanted)))
    reverse = replace(asked, op=OPPOSITES[asked.op])
    return matches(lower if asked.op in {"lt", "lt-eq"} else upper, reverse)


def _all_match(ranges: Ranges, asked: Condition) -> Mask:
    try:
        return _every_match(ranges, asked)
    except UNUSABLE:
        return _constant(len(ranges.lower), value=False)


def _every_match(ranges: Ranges, asked: Condition) -> Mask:
    """Return where a condition is certainly TRUE for every value."""
    match asked.op:
        case "is-null":
            return ranges.only_nulls
        case "not-null":
            return ranges.no_nulls
        case "is-nan":
            return pc.and_(ranges.only_nans, ranges.no_nulls)
        case "not-nan":
            return ranges.only_values
        case "not-eq" | "not-in" | "not-starts-with" | "not-like":
            # NaN differs from every literal
            positive = replace(asked, op=OPPOSITES[asked.op])
            outside = pc.or_(ranges.only_nans, _outside(ranges, positive))
            return pc.and_(ranges.no_nulls, outside)
    return pc.and_(ranges.only_values, _inside(ranges, asked))


def _inside(ranges: Ranges, asked: Condition) -> Mask:
    """Return where the whole range certainly satisfies a positive condition."""
    lower, upper = ranges.lower, ranges.upper
    if asked.op == "starts-with":
        return _inside_prefix(ranges, asked.values[0])
    if asked.op in {"eq", "in", "like"}:
        op = "like" if asked.op == "like" else "in"
        return pc.and_(_one_value(ranges), matches(lower, replace(asked, op=op)))
    return matches(upper if asked.op in {"lt", "lt-eq"} else lower, asked)


def _one_value(ranges: Ranges) -> Mask:
    return _certain(pc.equal(ranges.lower, ranges.upper))


def _outside_pattern(ranges: Ranges, asked: Condition) -> Mask:
    other = pc.invert(matches(ranges.lower, asked))
    outside = _outside_prefix(ranges, literal_prefix(asked.values[0]))
    return pc.or_(outside, pc.and_(_one_value(ranges), other))


def _inside_prefix(ranges: Ranges, prefix: str) -> Mask:
    after = _certain(pc.greater_equal(ranges.lower, pa.scalar(prefix, ranges.lower.type)))
    end = prefix_end(prefix)
    if end is None:
        return after
    return pc.and_(after, _certain(pc.less(ranges.upper, pa.scalar(end, ranges.upper.type))))


def _outside_prefix(ranges: Ranges, prefix: str) -> Mask:
    before = _certain(pc.less(ranges.upper, pa.scalar(prefix, ranges.upper.type)))
    end = prefix_end(prefix)
    if end is None:
        return before
    return pc.or_(
        before, _certain(pc.greater_equal(ranges.lower, pa.scalar(end, ranges.lower.type)))
    )


def _any_between(wanted: tuple[Any, ...], lower: pa.Array, upper: pa.Array) -> Mask:
    """Return where one of the values may be between the bounds; an unknown bound does not exclude any."""
    values = pa.array(wanted, lower.type)
    first, end = values_between(values.take(pc.sort_indices(values)), lower, upper)
    return pa.array(end > first)


def values_between(
    values: pa.Array, lower: pa.Array, upper: pa.Array
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each pair of bounds which values may be between them: the first, and the end of their slice.

    Args:
        values: ascending values, in `comparable` form.
        lower: lower bounds of the same type; NULL excludes no value.
        upper: upper bounds.
    """
    first = _count_below(values, lower, side="left")
    end = _count_below(values, upper, side="right")
    first[lower.is_null().to_numpy(zero_copy_only=False)] = 0
    end[upper.is_null().to_numpy(zero_copy_only=False)] = len(values)
    return first, end


def _count_below(
    values: pa.Array, limits: pa.Array, *, side: Literal["left", "right"]
) -> npt.NDArray[np.int64]:
    """Return how many values are less than each limit (``right``: or equal); undefined where it is NULL."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        known = limits.fill_null(pa.scalar(0, limits.type)).to_numpy()
        found: npt.NDArray[np.int64] = np.searchsorted(values.to_numpy(), known, side)
        return found
    if pa.types.is_fixed_size_binary(values.type):
        values, limits = values.cast(pa.binary()), limits.cast(pa.binary())
    if values.type in _SEARCHABLE:
        numbers = pc.search_sorted(values, limits, side=side).fill_null(0).to_numpy()
        return np.asarray(numbers, np.int64)
    if len(limits) * _SEARCHED_VALUES < len(values):
        search = bisect_left if side == "left" else bisect_right
        ordered, texts = _Ordered(values), limits.to_pylist()
        return np.array([0 if text is None else search(ordered, text) for text in texts], np.int64)
    # Arrow ranks values that numpy cannot order: a limit's rank among all, minus its rank among the limits.
    tie = "min" if side == "left" else "max"
    among_all = pc.rank(pa.concat_arrays([limits, values]), tiebreaker=tie).slice(0, len(limits))
    among_limits = pc.rank(limits, tiebreaker=tie)
    counts: npt.NDArray[np.int64] = np.subtract(among_all, among_limits, dtype=np.int64)
    return counts


class _Ordered(Sequence[Any]):
    """The values of an array for a binary search, which reads few of them."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._values[index].as_py()


def _projections(
    spec: PartitionSpec, predicate: BoundPredicate, *, strict: bool
) -> list[tuple[PartitionField, Condition]]:
    """Return the conditions that a predicate implies for the partition fields of its column.

    A literal that the transform moves out of its type's range (hours after the year 246,000) implies no
    condition: writers differ in what they store there.

    Inclusive: a row can only match if its partition does. Strict: if the partition matches, every
    row in it matches.
    """
    found = []
    for field in spec.fields_by_source_id(predicate.term.ref().field.field_id):
        asked = _project(field, predicate, strict=strict)
        if asked is not None:
            found.append((field, asked))
    return found


def _project(field: PartitionField, predicate: BoundPredicate, *, strict: bool) -> Condition | None:
    projectable = _without_pattern(field, predicate, strict=strict)
    if projectable is None:
        return None
    project = field.transform.strict_project if strict else field.transform.project
    try:
        projected = project(field.name, projectable)
    except UNUSABLE:
        return None
    if projected is None:
        return None
    asked = condition(projected)
    if isinstance(field.transform, TimeTransform):
        return _widen_early(asked, strict=strict)
    return asked


def _without_pattern(
    field: PartitionField, predicate: BoundPredicate, *, strict: bool
) -> BoundPredicate | None:
    """Return an equivalent predicate that PyIceberg's transforms support.

    Every match of a pattern starts with its prefix. So ``starts-with`` replaces ``like`` in an inclusive projection,
    and ``not-starts-with`` replaces ``not-like`` in a strict one.
    """
    if not isinstance(predicate, BoundLike | BoundNotLike):
        return predicate
    if isinstance(field.transform, IdentityTransform):
        return predicate
    if isinstance(predicate, BoundLike) == strict:
        return None
    prefix = StringLiteral(literal_prefix(predicate.literal.value))
    replaced: BoundPredicate = BOUND_CLASSES["not-starts-with" if strict else "starts-with"](
        predicate.term, prefix
    )
    return replaced


def _widen_early(asked: Condition, *, strict: bool) -> Condition:
    """Include the partition that is one too great, for writers that rounded times before 1970 up.

    Iceberg Java does the same (`ProjectionUtil.fixInclusiveTimeProjection`).
    """
    early = [value for value in asked.values if value < 0]
    if not early:
        return asked
    moved = [value + 1 for value in early]
    if asked.op in {"eq", "in", "not-eq", "not-in"}:
        op = "not-in" if asked.op.startswith("not-") else "in"
        return Condition(op, tuple({*asked.values, *moved}))
    shifted = {"gt", "gt-eq"} if strict else {"lt", "lt-eq"}
    return Condition(asked.op, tuple(moved)) if asked.op in shifted else asked


def partition_field_type(field: PartitionField, schema: Schema) -> IcebergType:
    """Return the type of a partition field's values."""
    return field.transform.result_type(schema.find_type(field.source_id))


def _has_nan(type_: IcebergType) -> bool:
    return isinstance(type_, FloatType | DoubleType)


def _reliable(lower: pa.Array, upper: pa.Array, type_: IcebergType) -> tuple[pa.Array, pa.Array]:
    """Return bounds in `comparable` form; both are unknown if one is NaN, because its writer included NaN."""
    if _has_nan(type_):
        suspect = pc.or_(_certain(pc.is_nan(lower)), _certain(pc.is_nan(upper)))
        nothing = pa.scalar(None, lower.type)
        lower, upper = (pc.if_else(suspect, nothing, bounds) for bounds in (lower, upper))
    return comparable(lower, type_), comparable(upper, type_)


def _all_of(counted: pa.Array, values: pa.Array) -> Mask:
    return _certain(pc.and_(pc.equal(counted, values), pc.greater(values, 0)))


def _certain(mask: pa.BooleanArray) -> Mask:
    return mask.fill_null(fill_value=False)


def _constant(length: int, *, value: bool) -> Mask:
    return pa.repeat(pa.scalar(value), length)
