"""Prune manifests, files and row groups by a set of keys, over whole columns at once.

A file is kept if some key may be in it, by three kinds of evidence: the partition summaries of its manifest, its
partition (the keys are transformed by the writer's own code) and its column bounds. If evidence is missing or
unreadable, the file is kept. Rules: https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TimeTransform,
    TruncateTransform,
)
from pyiceberg.types import UUIDType

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.base.facts import Facts
from lake.core.data.keys.key_set import ColumnValues, KeySet
from lake.core.spec.types.bounds import comparable
from lake.core.spec.types.transforms import transformed, unfit
from lake.core.table.snapshots.pruning import (
    UNUSABLE,
    FileStatistics,
    ManifestStatistics,
    Ranges,
    partition_field_type,
    values_between,
)

_LARGEST_CODE = 2**62
_SECONDS_OF_HOUR = 3600
# Bytes of a UUID that all writers compare alike: some compare its two halves as signed numbers.
_ORDERED_UUID_BYTES = 8
_UUID_BYTES = 16


class _Counts(Facts):
    __slots__ = ()

    def add(self, other: Self) -> None:
        """Add the counts of other files."""
        for item in fields(cast("Any", self)):
            mine, more = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, _Counts):
                mine.add(more)
            else:
                setattr(self, item.name, mine + more)


@dataclass(slots=True)
class ExclusionCounts(_Counts):
    """Files that were excluded, by each kind of evidence."""

    manifest: int = 0
    """Files of manifests that were skipped."""
    partition: int = 0
    """Files whose partition has none of the keys."""
    bounds: int = 0
    """Files whose bounds exclude the keys."""


@dataclass(slots=True)
class PruningCounts(_Counts):
    """What a set of keys excluded: manifests, and files by each kind of evidence, with totals before and after.

    Partitions and bytes of the files in excluded manifests are not known.
    """

    manifests_before: int = 0
    """Manifests without keys."""
    manifests_after: int = 0
    """Manifests that are left with keys."""
    partitions_before: int = 0
    """Partitions without keys; null if manifests were skipped, because these are not read."""
    partitions_after: int = 0
    """Partitions that are left with keys."""
    files_before: int = 0
    """Files without keys."""
    files_after: int = 0
    """Files that are left with keys."""
    bytes_before: int = 0
    """Bytes of the files without keys; null if manifests were skipped."""
    bytes_after: int = 0
    """Bytes of the files that are left with keys."""
    by: ExclusionCounts = field(default_factory=ExclusionCounts)
    """How many files were excluded by what."""

    def values(self) -> dict[str, Any]:
        """Return the counts by their names in the output; None for counts that are not known."""
        found = super(_Counts, self).values()
        if self.manifests_before != self.manifests_after:
            found |= {"partitions_before": None, "bytes_before": None}
        return found


@dataclass(frozen=True, slots=True)
class _FieldKeys:
    """The keys of one partition field.

    Args:
        field: the field.
        values: the field's value of each key, in `comparable` form, with equal bits for equal values.
        column: the distinct values.
        ordered: whether the field keeps the order of its column.
    """

    field: PartitionField
    values: pa.Array
    column: ColumnValues
    ordered: bool


class KeyPruner:
    """Chooses the files of a table that may contain rows with some keys, and counts the others.

    Args:
        keys: the keys; None to exclude nothing.
        schema: the schema with the columns of the key.
    """

    def __init__(self, keys: KeySet | None, schema: Schema) -> None:
        self._evidence = None if keys is None else KeyEvidence(keys, schema)
        self.counts = PruningCounts()
        self._before = _Partitions()
        self._after = _Partitions()
        self._reasons: dict[str, None] = {}

    @property
    def reasons(self) -> list[str]:
        """Why some evidence was not used, in words."""
        own = {} if self._evidence is None else self._evidence.reasons
        return list({**self._reasons, **own})

    def add(self, other: KeyPruner) -> None:
        """Add what another one counted."""
        self.counts.add(other.counts)
        self._reasons.update(dict.fromkeys(other.reasons))

    def prune_manifests(self, manifests: pa.Table, metadata: TableMetadata) -> pa.Table:
        """Return the data manifests that may contain files with the keys, by their partition summaries.

        Args:
            manifests: rows of a manifest list; those of an unknown spec are kept.
            metadata: the metadata with the specs.
        """
        kept = np.ones(manifests.num_rows, np.bool_)
        if self._evidence is not None:
            kept = self._evidence.manifests_match(manifests, metadata)
        files = pc.add(
            pc.fill_null(manifests["added_files_count"], 0),
            pc.fill_null(manifests["existing_files_count"], 0),
        )
        skipped = int(pc.sum(files.filter(pa.array(~kept))).as_py() or 0)
        self.counts.manifests_before += len(kept)
        self.counts.manifests_after += int(kept.sum())
        self.counts.files_before += skipped
        self.counts.by.manifest += skipped
        return manifests.filter(pa.array(kept))

    def prune_files(self, entries: pa.Table, spec: PartitionSpec) -> pa.Table:
        """Return those of some data files of one spec that may contain a key."""
        in_partition = kept = entries
        if self._evidence is not None:
            in_partition = _filtered(entries, self._evidence.partitions_match(entries, spec))
            kept = _filtered(in_partition, self._evidence.bounds_match(in_partition, spec))
        counts = self.counts
        counts.files_before += entries.num_rows
        counts.files_after += kept.num_rows
        counts.by.partition += entries.num_rows - in_partition.num_rows
        counts.by.bounds += in_partition.num_rows - kept.num_rows
        counts.bytes_before += _bytes(entries)
        counts.bytes_after += _bytes(kept)
        counts.partitions_before += self._before.add(entries, spec)
        counts.partitions_after += self._after.add(kept, spec)
        return kept


class _Partitions:
    """The distinct partitions of files."""

    def __init__(self) -> None:
        self._known: dict[int, pa.Table] = {}

    def add(self, entries: pa.Table, spec: PartitionSpec) -> int:
        """Add the partitions of files of one spec, and return how many are new."""
        kind = entries.schema.field("partition").type
        if not entries.num_rows:
            return 0
        # A spec without fields has one partition.
        fields = one_array(entries["partition"]).flatten() if kind.num_fields else []
        columns = [pa.repeat(0, entries.num_rows), *fields]
        names = [str(index) for index in range(len(columns))]
        found = pa.table(columns, names=names)
        known = self._known.get(spec.spec_id)
        every = found if known is None else pa.concat_tables([known, found])
        distinct = every.group_by(names).aggregate([])
        self._known[spec.spec_id] = distinct
        return int(distinct.num_rows) - (0 if known is None else int(known.num_rows))


class KeyEvidence:
    """Decides what may contain some keys."""

    def __init__(self, keys: KeySet, schema: Schema) -> None:
        self.keys = keys
        self.schema = schema
        self.reasons: dict[str, None] = {}
        self._fields: dict[int, list[_FieldKeys]] = {}

    def manifests_match(self, manifests: pa.Table, metadata: TableMetadata) -> Mask:
        """Return which manifests may contain files with a key; see `KeyPruner.prune_manifests`."""
        spec_ids = manifests["partition_spec_id"].to_numpy()
        kept = np.full(manifests.num_rows, len(self.keys) > 0)
        for spec_id, spec in metadata.specs().items():
            rows = np.flatnonzero(spec_ids == spec_id)
            if len(rows) and len(self.keys):
                partitions = one_array(manifests["partitions"].take(pa.array(rows)))
                kept[rows] = self._summaries_match(partitions, spec)
        return kept

    def _summaries_match(self, partitions: pa.ListArray, spec: PartitionSpec) -> Mask:
        statistics = ManifestStatistics(partitions, spec, self.schema)
        found = np.ones(len(partitions), np.bool_)
        for item in self._fields_of(spec):
            if not (self.keys.exact or item.ordered):
                continue
            try:
                ranges = statistics.ranges_of(item.field)
                if isinstance(partition_field_type(item.field, self.schema), UUIDType):
                    ranges = _uuid_ranges(ranges)
                found &= self._may_contain(ranges, item.column)
            except UNUSABLE:
                continue
        return found

    # Partitions

    def _fields_of(self, spec: PartitionSpec) -> list[_FieldKeys]:
        """Return the keys of those of a spec's fields that show whether a partition contains keys."""
        if spec.spec_id not in self._fields:
            found = []
            for item in spec.fields:
                if item.source_id not in self.keys.types:
                    continue
                keys = self._transformed(item)
                if keys is None:
                    self.reasons[
                        f"partition field {item.name} ({item.transform}) excludes no file"
                    ] = None
                else:
                    found.append(keys)
            self._fields[spec.spec_id] = found
        return self._fields[spec.spec_id]

    def _transformed(self, item: PartitionField) -> _FieldKeys | None:
        """Return the keys of a partition field; None if they do not show anything."""
        ordered = isinstance(item.transform, IdentityTransform | TruncateTransform | TimeTransform)
        if not (ordered or (isinstance(item.transform, BucketTransform) and self.keys.exact)):
            return None
        column = one_array(self.keys.rows[str(item.source_id)])
        name = self.schema.find_column_name(item.source_id)
        try:
            batch = pa.RecordBatch.from_arrays([column], names=[name])
            raw = transformed(batch, self.schema, item.source_id, item.transform)
            if pc.any(unfit(column, raw), min_count=0).as_py():
                # Writers differ in what they store for values that do not fit the field.
                return None
            values = _same_bits(comparable(raw, partition_field_type(item, self.schema)))
        except UNUSABLE:
            return None
        has_nan = item.source_id in self.keys.nans
        known = _distinct(_early(values) if isinstance(item.transform, TimeTransform) else values)
        if pa.types.is_floating(known.type):
            nan = pc.is_nan(known)
            has_nan = has_nan or bool(pc.any(nan).as_py())
            known = known.filter(pc.invert(nan))
        return _FieldKeys(item, values, ColumnValues(known, has_nan), ordered)

    def partitions_match(self, entries: pa.Table, spec: PartitionSpec) -> Mask:
        """Return which files have a partition that contains keys."""
        if not len(self.keys):
            return np.zeros(entries.num_rows, np.bool_)
        statistics = FileStatistics(entries, spec, self.schema)
        pairs = []
        for item in self._fields_of(spec):
            try:
                values = statistics.partition_values(item.field)
            except UNUSABLE:
                values = None
            if values is not None:
                pairs.append((item, _same_bits(values)))
        if not pairs:
            return np.ones(entries.num_rows, np.bool_)
        if not self.keys.exact:
            return reduce(np.logical_and, [_in_range(values, item) for item, values in pairs])
        return _tuples_match(pairs)

    # Bounds

    def bounds_match(self, entries: pa.Table, spec: PartitionSpec) -> Mask:
        """Return which files may contain a key by their column statistics; row groups are evaluated likewise."""
        found = np.full(entries.num_rows, len(self.keys) > 0)
        statistics = FileStatistics(entries, spec, self.schema)
        ranges = {}
        for column, kind in self.keys.types.items():
            known = statistics.ranges_of(column, kind)
            ranges[column] = _uuid_ranges(known) if isinstance(kind, UUIDType) else known
            try:
                found &= self._may_contain(ranges[column], self.keys.columns[column])
            except UNUSABLE:
                continue
        if len(self.keys.types) > 1 and self.keys.exact and found.any():
            found[found] = self._tuples_between(ranges, np.flatnonzero(found))
        rows = one_array(entries["record_count"])
        found &= _mask(pc.not_equal(rows, 0).fill_null(fill_value=True))
        return found

    def _may_contain(self, ranges: Ranges, column: ColumnValues) -> Mask:
        """Return where a column's values are possible."""
        lower, upper = ranges.lower, ranges.upper
        values = column.values.cast(lower.type)
        first, end = values_between(values, lower, upper)
        # Between two neighbouring values of a range are values of the set.
        some = end > first if self.keys.exact else (end > 0) & (first < len(values))
        found: Mask = some & ~_mask(ranges.without_values)
        if column.has_nan:
            found |= ~_mask(pc.or_(ranges.no_nans, ranges.only_nulls))
        return found

    def _tuples_between(self, ranges: Mapping[int, Ranges], files: Int64s) -> Mask:
        """Return which files may contain a whole key.

        The keys whose first column is between a file's bounds are a slice of all keys, in the order of that column.
        A file contains none of them if the slice's range of another column is outside of the file's bounds.
        """
        ranks = self.keys.ranks
        found = np.ones(len(files), np.bool_)
        if ranks is None:
            return found
        rows = pa.array(files)
        slices = []
        for column, known in ranges.items():
            values = self.keys.columns[column].values
            lower, upper = known.lower.take(rows), known.upper.take(rows)
            try:
                slices.append(values_between(values.cast(lower.type), lower, upper))
            except UNUSABLE:
                slices.append((np.zeros(len(files), np.int64), np.full(len(files), len(values))))
        start, end = (np.searchsorted(ranks[0], limit) for limit in slices[0])
        for position in range(1, len(ranks)):
            least, greatest = _extremes(ranks[position], start, end)
            first, after = slices[position]
            found &= (greatest >= first) & (least < after)
        return found


def _filtered(entries: pa.Table, chosen: Mask) -> pa.Table:
    # To copy all entries with their statistics takes longer than to judge them.
    return entries if chosen.all() else entries.filter(pa.array(chosen))


def _mask(array: pa.Array) -> Mask:
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found


def _bytes(entries: pa.Table) -> int:
    return int(pc.sum(entries["file_size_in_bytes"]).as_py() or 0)


def _same_bits(values: pa.Array) -> pa.Array:
    """Return values with equal bits if they are equal: one zero and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(float("nan"), values.type)
    zero = pa.scalar(0.0, values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def _early(values: pa.Array) -> pa.Array:
    """Add the partition that is one too great, for writers that rounded times before 1970 up.

    Iceberg Java does the same (`ProjectionUtil.fixInclusiveTimeProjection`).
    """
    early = values.filter(pc.less(values, 0))
    return pa.concat_arrays([values, pc.add(early, pa.scalar(1, values.type))])


def _distinct(values: pa.Array) -> pa.Array:
    found = pc.unique(values).drop_null()
    return found.take(pc.sort_indices(found))


def _in_range(values: pa.Array, item: _FieldKeys) -> Mask:
    known = item.column.values
    found = np.zeros(len(values), np.bool_)
    if len(known):
        inside = pc.and_(
            pc.greater_equal(values, known[0]), pc.less_equal(values, known[len(known) - 1])
        )
        found |= _mask(inside.fill_null(fill_value=False))
    if item.column.has_nan:
        found |= _mask(pc.is_nan(values).fill_null(fill_value=False))
    return found


def _tuples_match(pairs: Sequence[tuple[_FieldKeys, pa.Array]]) -> Mask:
    """Return which partitions are those of some keys, by all of some fields together."""
    keys = _widened([item for item, _ in pairs])
    key_codes, file_codes = np.zeros(len(keys[0]), np.int64), np.zeros(len(pairs[0][1]), np.int64)
    known = np.ones(len(file_codes), np.bool_)
    size = 1
    for values, (_, partitions) in zip(keys, pairs, strict=True):
        distinct = pc.unique(values)
        if size * len(distinct) > _LARGEST_CODE:
            key_codes, file_codes, size = _renumbered(key_codes, file_codes)
        of_keys, of_files = (
            pc.index_in(column, value_set=distinct).fill_null(-1).to_numpy().astype(np.int64)
            for column in (values, partitions)
        )
        known &= (of_files >= 0) & _mask(partitions.is_valid())
        key_codes = key_codes * len(distinct) + of_keys
        file_codes = file_codes * len(distinct) + np.maximum(of_files, 0)
        size *= max(len(distinct), 1)
    known &= np.isin(file_codes, np.unique(key_codes))
    return known


def _renumbered(left: Int64s, right: Int64s) -> tuple[Int64s, Int64s, int]:
    distinct, codes = np.unique(np.concatenate([left, right]), return_inverse=True)
    codes = codes.astype(np.int64)
    return codes[: len(left)], codes[len(left) :], len(distinct)


def _widened(items: Sequence[_FieldKeys]) -> list[pa.Array]:
    """Return the distinct keys of some fields; of times before 1970 also those of the next partition."""
    names = [str(position) for position in range(len(items))]
    keys = pa.table([item.values for item in items], names=names)
    keys = keys.group_by(names).aggregate([])
    for position, item in enumerate(items):
        if isinstance(item.field.transform, TimeTransform):
            early = keys.filter(pc.less(keys[position], 0))
            next_values = pc.add(early[position], pa.scalar(1, item.values.type))
            moved = early.set_column(position, names[position], next_values)
            keys = pa.concat_tables([keys, moved])
    return [one_array(column) for column in keys.columns]


def _uuid_ranges(ranges: Ranges) -> Ranges:
    """Return bounds that hold in every order of UUIDs that writers use; NULL where there are none."""
    lower = _padded(ranges.lower, b"\x00")
    upper = _padded(ranges.upper, b"\xff")
    nothing = pa.scalar(None, lower.type)
    crossed = pc.greater(lower, upper).fill_null(fill_value=False)
    return Ranges(
        lower=pc.if_else(crossed, nothing, lower),
        upper=pc.if_else(crossed, nothing, upper),
        no_nulls=ranges.no_nulls,
        only_nulls=ranges.only_nulls,
        no_nans=ranges.no_nans,
        only_nans=ranges.only_nans,
        empty=ranges.empty,
    )


def _padded(bounds: pa.Array, byte: bytes) -> pa.Array:
    """Return UUIDs with only their first half; the other half consists of one byte."""
    raw = bounds.fill_null(pa.scalar(bytes(_UUID_BYTES), bounds.type))
    values = np.frombuffer(b"".join(raw.to_pylist()), np.uint8).reshape(-1, _UUID_BYTES).copy()
    values[:, _ORDERED_UUID_BYTES:] = byte[0]
    padded = pa.Array.from_buffers(bounds.type, len(bounds), [None, pa.py_buffer(values)])
    return pc.if_else(bounds.is_valid(), padded, pa.scalar(None, bounds.type))


def _extremes(values: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Return the least and the greatest value of each slice, which must not be empty.

    A slice is covered by two blocks whose length is a power of two. The blocks of one length are computed from
    those of half the length, so that only one length is in memory.
    """
    least, greatest = (np.zeros(len(start), np.int64) for _ in range(2))
    lengths = np.maximum(end - start, 1)
    levels = np.frexp(lengths.astype(np.float64))[1] - 1
    lows = highs = values
    for level in range(int(levels.max(initial=0)) + 1):
        if level:
            half = 1 << (level - 1)
            lows = np.minimum(lows[:-half], lows[half:])
            highs = np.maximum(highs[:-half], highs[half:])
        asked = np.flatnonzero(levels == level)
        left, right = start[asked], end[asked] - (1 << level)
        least[asked] = np.minimum(lows[left], lows[right])
        greatest[asked] = np.maximum(highs[left], highs[right])
    return least, greatest
