"""What an overwrite removes, from metadata: partitions, files, and bounds of the number of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType

from lake.core.base.arrow import one_array
from lake.core.base.errors import CorruptFileError, NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, first_rows
from lake.core.spec.types.bounds import BoundColumn, bound_array
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.spec.types.single_values import (
    from_single_values,
    partition_struct,
    partition_type,
    struct_array,
)
from lake.core.spec.types.transforms import transformed_values
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.table.snapshots.partition_names import partition_names
from lake.core.table.snapshots.pruning import (
    FILTER_COLUMNS,
    FileStatistics,
    partition_field_type,
    values_between,
)

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.spec.types.transforms import Partition
    from lake.core.table.catalogs.catalog import Table

# What the number of rows and the partitions depend on.
_COLUMNS = ("file_path", "partition", "record_count", "file_size_in_bytes", "sequence_number")
_BOUNDS: tuple[BoundColumn, BoundColumn] = ("lower_bounds", "upper_bounds")
_SHOWN = 20
# For each spec id, a number for each file.
_Counts = Mapping[int, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedPartition:
    """What goes of one partition.

    Args:
        partition: its name, as of its folder; empty if the files are not partitioned.
        files: data files that are removed entirely.
        rows: the most rows in them.
        rewritten_files: data files of which some rows may stay.
        rewritten_rows: the most rows that go of those.
    """

    partition: str
    files: int = 0
    rows: int = 0
    rewritten_files: int = 0
    rewritten_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """What an overwrite removes.

    Args:
        rows_at_least: rows that certainly go.
        rows_at_most: rows that may go. It is more if it is not known how many of them delete files have deleted,
            or if only some rows of a file go.
        partitions: the partitions that lose rows, in the order of their first file.
    """

    rows_at_least: int = 0
    rows_at_most: int = 0
    partitions: Sequence[RemovedPartition] = ()

    @property
    def rows(self) -> int | None:
        """The number of rows that go; None if metadata does not show it."""
        return self.rows_at_least if self.rows_at_least == self.rows_at_most else None

    @property
    def files(self) -> int:
        """The number of data files that are removed entirely."""
        return sum(item.files for item in self.partitions)

    @property
    def rewritten_files(self) -> int:
        """The number of data files of which some rows may stay."""
        return sum(item.rewritten_files for item in self.partitions)

    def rewritten(self, rows_by_partition: Sequence[tuple[str, int]]) -> Removals:
        """Return the removals after the rewrite.

        Args:
            rows_by_partition: the partition of each file that was rewritten, and how many of its rows went.
        """
        found = {
            item.partition: replace(item, rewritten_files=0, rewritten_rows=0)
            for item in self.partitions
        }
        for name, rows in rows_by_partition:
            before = found.get(name, RemovedPartition(partition=name))
            found[name] = replace(
                before,
                rewritten_files=before.rewritten_files + 1,
                rewritten_rows=before.rewritten_rows + rows,
            )
        went = sum(rows for _, rows in rows_by_partition)
        planned = sum(item.rewritten_rows for item in self.partitions)
        return Removals(
            rows_at_least=self.rows_at_least + went,
            rows_at_most=self.rows_at_most - planned + went,
            partitions=[item for item in found.values() if item.files or item.rewritten_files],
        )

    def counted(
        self, whole: Sequence[tuple[str, int]], partly: Sequence[tuple[str, int]]
    ) -> Removals:
        """Return the removals after all rows that go were counted.

        Args:
            whole: for some of these files, the partition, and how many rows less than the most are in the file.
            partly: the partition of each other file of which rows go, and how many go.
        """
        found = {item.partition: item for item in self.partitions}
        for name, less in whole:
            found[name] = replace(found[name], rows=found[name].rows - less)
        rewritten = replace(self, partitions=list(found.values())).rewritten(partly)
        rows = sum(item.rows + item.rewritten_rows for item in rewritten.partitions)
        return replace(rewritten, rows_at_least=rows, rows_at_most=rows)

    def shown(self, *, verbose: bool) -> tuple[Detail, list[str]]:
        """Return the partitions as a table to print, of bounded length, and a note of what it leaves out."""
        chosen, notes = first_rows(self.partitions, _SHOWN, "partitions", every=verbose)
        columns = ["partition", "files", "rows" if self.rows is not None else "rows at most"]
        rows = [
            [
                item.partition,
                item.files + item.rewritten_files,
                item.rows + item.rewritten_rows,
            ]
            for item in chosen
        ]
        return Detail("partitions that lose rows", columns, rows), notes


def removals_of(whole: LiveFiles, partly: LiveFiles | None = None) -> Removals:
    """Return what goes if some files go whole and some rows of others."""
    least, most = row_bounds(whole)
    found = {
        name: RemovedPartition(partition=name, files=files, rows=rows)
        for name, (files, rows) in _by_partition(whole, most).items()
    }
    rewritten_rows = 0
    if partly is not None:
        _, of_partly = row_bounds(partly)
        rewritten_rows = _total(of_partly)
        for name, (files, rows) in _by_partition(partly, of_partly).items():
            before = found.get(name, RemovedPartition(partition=name))
            found[name] = replace(before, rewritten_files=files, rewritten_rows=rows)
    return Removals(
        rows_at_least=_total(least),
        rows_at_most=_total(most) + rewritten_rows,
        partitions=list(found.values()),
    )


def removals_in_partitions(
    table: Table, head: Snapshot | None, partitions: Collection[Partition]
) -> Removals:
    """Return what goes if partitions of the table's spec are replaced; all files, if it is unpartitioned.

    Raises:
        RefusedError: files of another spec may have rows of the partitions, which would stay beside the new ones.
    """
    if head is None or not partitions:
        return Removals()
    several = len(table.metadata.specs()) > 1 and not table.spec.is_unpartitioned()
    columns = (*_COLUMNS, "content", *FILTER_COLUMNS) if several else _COLUMNS
    found = live_files(table, head, columns=columns)
    if table.spec.is_unpartitioned():
        return removals_of(found)
    kind = partition_type(table.spec, [table.schema])
    values = [
        from_single_values(column, field.field_type)
        for column, field in zip(zip(*partitions, strict=True), kind.fields, strict=True)
    ]
    own = table.spec.spec_id
    for spec_id, entries in found.by_spec.items():
        if spec_id != own:  # check: replaced-in-every-spec
            _refuse_rows_of(table, spec_id, entries, values)
    wanted = struct_array(values, partition_struct(kind), len(partitions))
    by_spec = {own: _in_partitions(found.by_spec[own], wanted)} if own in found.by_spec else {}
    return removals_of(replace(found, by_spec=by_spec))


def _refuse_rows_of(
    table: Table, spec_id: int, entries: pa.Table, values: Sequence[pa.Array]
) -> None:
    """Refuse files of another spec that may have rows of partitions of the table's spec.

    Args:
        table: the table.
        spec_id: the other spec.
        entries: its files.
        values: the values of each field of the table's spec in the partitions.

    Raises:
        RefusedError: there is such a file.
    """
    spec = table.metadata.specs()[spec_id]
    files = FileStatistics(entries, spec, table.schema)
    may = pa.repeat(pa.scalar(value=True), entries.num_rows)
    for field, wanted in zip(table.spec.fields, values, strict=True):
        may = pc.and_(may, _may_have(files, field, wanted))
    found = entries.filter(may)
    if found.num_rows:
        raise RefusedError(
            f"{found.num_rows:,} files of another partition spec ({spec_id}) may have rows of the partitions, e.g. "
            f"{found['file_path'][0].as_py()}: those rows would stay beside the new ones",
            hint=f"{Option.OLD_SPECS} rewrites such files; {Option.OVERWRITE_WHERE} replaces rows in all files",
        )


def _may_have(files: FileStatistics, field: PartitionField, wanted: pa.Array) -> pa.BooleanArray:
    """Return which files may have rows with one of the values of a partition field of another spec than theirs."""
    transform, source = field.transform, field.source_id
    anything = pa.repeat(pa.scalar(value=True), files.entries.num_rows)
    if isinstance(transform, VoidTransform):
        return anything
    kind = files.schema.find_type(source)
    nulls, exact = pc.invert(files.ranges_of(source, kind).no_nulls), False
    values = [bound_array(files.entries, one, source, kind) for one in _BOUNDS]
    for own in files.spec.fields_by_source_id(source):
        is_identity = isinstance(own.transform, IdentityTransform)
        if is_identity or own.transform == transform:
            partition = one_array(files.entries["partition"])
            values, exact = [pc.struct_field(partition, str(own.field_id))], True
            nulls = pc.is_null(values[0])
            if not is_identity:
                kind = partition_field_type(own, files.schema)
                transform = IdentityTransform()
            break
    if not exact and (not transform.preserves_order or isinstance(kind, FloatType | DoubleType)):
        return anything
    ends = [_ordered(transformed_values(one, kind, transform)) for one in values]
    known = _ordered(wanted.drop_null())
    first, end = values_between(known.take(pc.sort_indices(known)), ends[0], ends[-1])
    inside = pa.array(end > first)
    if exact:
        inside = pc.and_not(inside, nulls)
    return pc.or_(inside, nulls) if wanted.null_count else inside


def _ordered(values: pa.Array) -> pa.Array:
    """Return values so that numpy or Arrow can search them."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.uint8())
    if pa.types.is_temporal(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004
    return values


def rows_that_may_change(table: Table, head: Snapshot | None) -> Removals:
    """Return the files that a load by key compares with its keys, and how many of their rows it may change."""
    return Removals() if head is None else removals_of(live_files(table, head, columns=_COLUMNS))


def _in_partitions(entries: pa.Table, wanted: pa.Array) -> pa.Table:
    own, codes = partition_codes([entries["partition"], pa.chunked_array([wanted])])
    return entries.filter(pa.array(np.isin(own, codes)))


def row_bounds(files: LiveFiles) -> tuple[_Counts, _Counts]:
    """Return the least and the most rows that deletes leave in each file, by spec id."""
    try:
        bounds = {spec_id: files.row_bounds(spec_id) for spec_id in files.by_spec}
    except (CorruptFileError, NotFoundError, RefusedError):
        # The overwrite does not need the delete files: only the exact number of rows is not known.
        records = {key: item["record_count"].to_numpy() for key, item in files.by_spec.items()}
        return {key: np.zeros_like(item) for key, item in records.items()}, records
    least, most = ({key: item[end] for key, item in bounds.items()} for end in (0, 1))
    return least, most


def _total(counts: _Counts) -> int:
    return sum(int(item.sum()) for item in counts.values())


def _by_partition(files: LiveFiles, rows: _Counts) -> dict[str, tuple[int, int]]:
    """Return the number of files and of rows of each partition; those of several specs may have one name."""
    found: dict[str, tuple[int, int]] = {}
    for spec_id, entries in files.by_spec.items():
        known = partition_names(entries, spec_id, files.table.metadata)
        counts = np.bincount(known.codes, minlength=len(known.names))
        # As integers: floats have 53 bits.
        sums = np.zeros(len(known.names), np.int64)
        np.add.at(sums, known.codes, rows[spec_id])
        for name, count, total in zip(known.names, counts.tolist(), sums.tolist(), strict=True):
            before = found.get(name, (0, 0))
            found[name] = (before[0] + count, before[1] + total)
    return found
