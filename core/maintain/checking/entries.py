"""Whether the entries of manifests agree with their rows in lists and with the table's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FixedType,
    FloatType,
    UnknownType,
    UUIDType,
)

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.maintain.checking.findings import Finding
from lake.core.maintain.checking.table_metadata import fields_of
from lake.core.spec.types.bounds import BoundColumn, bound_array, decode_bounds
from lake.core.spec.types.single_values import source_type, stored_partition_type
from lake.core.spec.types.transforms import transformed_values, unfit
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES
from lake.core.table.snapshots.ancestry import added_at
from lake.core.table.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

_MONOTONIC = (
    IdentityTransform,
    YearTransform,
    MonthTransform,
    DayTransform,
    HourTransform,
    TruncateTransform,
)
_NOT_COMPARED = (UnknownType, UUIDType, FloatType, DoubleType, BinaryType, FixedType, BooleanType)
_BOUNDS: tuple[BoundColumn, BoundColumn] = ("lower_bounds", "upper_bounds")

COLUMNS = (
    "status",
    "snapshot_id",
    "content",
    "sequence_number",
    "file_sequence_number",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "sort_order_id",
    "first_row_id",
)
# The columns that only delete files have.
DELETE_COLUMNS = (
    "lower_bounds",
    "upper_bounds",
    "equality_ids",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)


def numbers_of(metadata: TableMetadata) -> pa.Table:
    """Return the ids of snapshots (`snapshot_id`) and the sequence numbers of what they added (`number`)."""
    ids = pa.array([item.snapshot_id for item in metadata.snapshots], pa.int64())
    numbers = pa.array([added_at(item) for item in metadata.snapshots], pa.int64())
    return pa.table({"snapshot_id": ids, "number": numbers})


class EntryChecks:
    """Checks live entries; which ids exist is determined once."""

    def __init__(self, metadata: TableMetadata, numbers: pa.Table) -> None:
        """Take the table's metadata, and the sequence numbers of its snapshots (`numbers_of`)."""
        self._metadata = metadata
        self._specs = metadata.specs()
        self._orders = pa.array([item.order_id for item in metadata.sort_orders], pa.int32())
        ids = {field.field_id for item in metadata.schemas for field in fields_of(item.fields)}
        self._columns = pa.array(sorted(ids), pa.int32())
        self._snapshots = one_array(numbers["snapshot_id"])
        self._numbers = one_array(numbers["number"])

    def of_files(self, live: pa.Table) -> Iterator[Finding]:
        """Check entries of one spec, each alone."""
        paths = one_array(live["file_path"])
        unsorted = pc.invert(pc.is_in(one_array(live["sort_order_id"]), value_set=self._orders))
        unsorted = pc.and_(unsorted, pc.is_valid(one_array(live["sort_order_id"])))
        yield from _each("E009", paths, unsorted, "its sort order does not exist")
        early = pc.greater(live["sequence_number"], live["file_sequence_number"])
        text = "its data sequence number is above the sequence number at which it was added"
        yield from _each("E007", paths, early, text)
        at = pc.index_in(one_array(live["snapshot_id"]), value_set=self._snapshots)
        other = pc.not_equal(self._numbers.take(at), one_array(live["file_sequence_number"]))
        text = "it was added at another sequence number than its snapshot has"
        yield from _each("E007", paths, other, text)

    def of_partitions(self, live: pa.Table, spec_id: int) -> Iterator[Finding]:
        """Compare the partitions of data files of one spec with the bounds of the source columns."""
        schema, paths = self._metadata.schema(), one_array(live["file_path"])
        partition = one_array(live["partition"])
        for field in self._specs[spec_id].fields:
            kind = source_type(field.source_id, [schema])
            name = str(field.field_id)
            if not isinstance(field.transform, _MONOTONIC) or isinstance(kind, _NOT_COMPARED):
                continue
            if partition.type.get_field_index(name) < 0:
                continue
            values = partition.field(name)
            ends = [bound_array(live, column, field.source_id, kind) for column in _BOUNDS]
            lower, upper = (transformed_values(end, kind, field.transform) for end in ends)
            beyond = pc.or_(unfit(ends[0], lower), unfit(ends[1], upper))
            # A value below the bounds, above them, NULL although there are values, or one that the field cannot have.
            bad = pc.or_kleene(
                pc.or_kleene(
                    pc.less(values, lower.cast(values.type)),
                    pc.greater(values, upper.cast(values.type)),
                ),
                pc.and_(values.is_null(), lower.is_valid()),
            )
            bad = pc.or_kleene(one_array(bad), beyond)
            bad = pc.and_(pc.equal(live["content"], DATA), bad)
            text = f"its value of the partition field {field.name} contradicts the bounds of the column"
            yield from _each("P001", paths, bad, text)

    def of_deletes(self, live: pa.Table) -> Iterator[Finding]:
        """Check entries of delete files, each alone."""
        paths = one_array(live["file_path"])
        by_key = pc.equal(live["content"], EQUALITY_DELETES)
        lengths = pc.fill_null(pc.list_value_length(live["equality_ids"]), 0)
        bad = pc.and_(by_key, pc.equal(lengths, 0))
        yield from _each("E002", paths, bad, "an equality delete file without column ids")
        end = pc.add(live["content_offset"], live["content_size_in_bytes"])
        beyond = pc.greater(end, live["file_size_in_bytes"])
        yield from _each("E003", paths, beyond, "a deletion vector ends after the end of its file")
        lists = one_array(live["equality_ids"])
        unknown = pc.invert(pc.is_in(lists.flatten(), value_set=self._columns))
        owners = pc.list_parent_indices(lists).filter(unknown).unique()
        bad = np.zeros(live.num_rows, np.bool_)
        bad[owners.to_numpy()] = True
        text = "an equality delete file of a column that no schema has"
        yield from _each("E004", paths, pc.and_(by_key, pa.array(bad)), text)
        lacks = pc.or_(
            pc.is_null(live["referenced_data_file"]),
            pc.or_(pc.is_null(live["content_offset"]), pc.is_null(live["content_size_in_bytes"])),
        )
        vector = pc.equal(live["file_format"], PUFFIN)
        text = "the entry of a deletion vector lacks its data file, its offset or its length"
        yield from _each("E008", paths, pc.and_(vector, lacks), text)

    def of_manifests(
        self, live: pa.Table, owners: Int64s, rows: Sequence[Any], spec_id: int
    ) -> Iterator[Finding]:
        """Compare entries of one spec with what a list says about their manifests.

        Args:
            live: the entries.
            owners: for each, the index of its manifest in `rows`.
            rows: rows of a list.
            spec_id: the spec of the entries.
        """
        lowest = np.array([row["min_sequence_number"] for row in rows], np.int64)
        numbers = pc.fill_null(one_array(live["sequence_number"]), 0).to_numpy()
        bad = numbers < lowest[owners]
        text = "the list's minimum sequence number is above that of an entry"
        yield from _of_manifests("L006", rows, owners[bad], text)
        partition = one_array(live["partition"])
        kinds = stored_partition_type(
            self._specs[spec_id], self._metadata.schema(), partition.type
        ).fields
        width = len(kinds)
        strange = [
            index
            for index, row in enumerate(rows)
            if row["partition_spec_id"] == spec_id and len(row["partitions"] or kinds) != width
        ]
        text = "its list summarises another number of partition fields than its spec has"
        yield from _of_manifests("L005", rows, np.array(strange, np.int64), text)
        summarised = np.array(
            [row["partitions"] is not None and len(row["partitions"]) == width for row in rows]
        )
        chosen = summarised[owners]
        for position, field in enumerate(kinds):
            if isinstance(field.field_type, UnknownType | UUIDType):
                continue
            outside = np.zeros(len(owners), np.bool_)
            values = partition.field(position).filter(pa.array(chosen))
            at = owners[chosen]
            summaries = [
                row["partitions"][position] if ok else None
                for row, ok in zip(rows, summarised.tolist(), strict=True)
            ]
            outside[chosen] = _outside(values, at, summaries, field.field_type)
            text = f"its list's summary of the partition field {field.name} excludes files"
            yield from _of_manifests("L005", rows, owners[outside], text)


def _outside(values: pa.Array, owners: Int64s, summaries: Sequence[Any], kind: IcebergType) -> Mask:
    """Return which partition values the summaries of their manifests exclude."""
    take = pa.array(owners)

    def of(name: str, data_type: pa.DataType) -> pa.Array:
        found = [None if item is None else item[name] for item in summaries]
        return pa.array(found, data_type)

    nulls = values.is_null()
    no_null = pc.equal(of("contains_null", pa.bool_()).take(take), pa.scalar(value=False))
    bad = pc.and_(nulls, pc.fill_null(no_null, fill_value=False))
    known = pc.invert(nulls)
    if pa.types.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), fill_value=False)
        no_nan = pc.equal(of("contains_nan", pa.bool_()).take(take), pa.scalar(value=False))
        bad = pc.or_(bad, pc.and_(nan, pc.fill_null(no_nan, fill_value=False)))
        known = pc.and_(known, pc.invert(nan))
    for name, excludes in (("lower_bound", pc.less), ("upper_bound", pc.greater)):
        raw = of(name, pa.binary())
        limits = decode_bounds(raw, kind).take(take)
        # Without a bound, readers assume that all values are NULL or NaN.
        lacking = pc.and_(known, raw.take(take).is_null())
        beyond = pc.and_(
            known, pc.fill_null(excludes(values, limits.cast(values.type)), fill_value=False)
        )
        bad = pc.or_(bad, pc.or_(lacking, beyond))
    return np.asarray(bad.to_numpy(zero_copy_only=False), np.bool_)


def _each(code: str, paths: pa.Array, bad: Any, text: str) -> Iterator[Finding]:
    mask = pc.fill_null(one_array(bad), fill_value=False)
    for path in paths.filter(mask).to_pylist():
        yield Finding(code, path, text)


def _of_manifests(code: str, rows: Sequence[Any], indices: Int64s, text: str) -> Iterator[Finding]:
    for index in np.unique(indices).tolist():
        yield Finding(code, rows[index]["manifest_path"], text)
