"""Plan a compaction: which files are rewritten together, and how."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DoubleType, FloatType

from lake.core.base.errors import (
    InvalidRequestError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.options import Option
from lake.core.base.outcome import Explanation
from lake.core.data.columns.metrics import leaves
from lake.core.data.rows.live_slices import slices_at
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.data.rows.writer import WriteSettings
from lake.core.data.sorting.sort_keys import RowOrder, described_order
from lake.core.maintain.compaction.concurrency.busy_partitions import (
    BusyPartitions,
    busy_partitions,
    rhythm_of,
)
from lake.core.maintain.compaction.facts import (
    CompactionFacts,
    DepthFacts,
    GroupFacts,
    LeftAlone,
)
from lake.core.maintain.compaction.grouping import (
    MORE_PARTITIONS,
    FileGroup,
    Grouping,
    least_file_bytes,
    numbers_of,
    plan_groups,
    row_group_sizes,
)
from lake.core.maintain.compaction.options import (
    BINPACK,
    COPY_AUTO,
    COPY_NEVER,
    CURVES,
    HILBERT,
    CompactionOptions,
)
from lake.core.maintain.compaction.overlapping import (
    Overlaps,
    depth_in_order,
    find_overlaps,
    plan_overlapping,
)
from lake.core.maintain.compaction.partition_counts import Integers, PartitionCounts
from lake.core.spec.expressions.filters import bind_filter, filter_columns
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.properties.table_properties import DATA_FORMAT, PARQUET_ROW_GROUP_BYTES
from lake.core.spec.types.arrow_schema import moved_schema
from lake.core.spec.types.bounds import count_array
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.spec.types.sort_orders import SortFields, order_id_of, partition_fields, table_order
from lake.core.spec.types.transform_syntax import curve_columns, sort_order
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.batches import EngineOf, in_this_process
from lake.core.table.manifests.data_files import DeleteFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles, live_files, no_files
from lake.core.table.snapshots.partition_activity import ACTIVITY_COLUMNS
from lake.core.table.snapshots.partition_names import PartitionNames, partition_names
from lake.core.table.snapshots.pruning import FILTER_COLUMNS
from lake.core.transaction.commit.preconditions import require_writable

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

# A row group of less than this part of the table's size is small.
_LARGE_PART = 8
_SIZE = "file_size_in_bytes"
_BY = f'specify a sort order, for example {Option.BY} "a desc, b"'
_COLUMNS = (
    "sequence_number",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "split_offsets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """A planned compaction of one snapshot of a branch.

    Args:
        table: the table that the plan was made for.
        branch: the branch whose head is compacted.
        base: that head; None for an empty branch.
        options: the requested options.
        found: the live files.
        groups: the groups of files that are rewritten together.
        remaining_files: how many more files would be rewritten without `max_files` and `max_bytes`.
        spec: the spec that files are written with.
        order: sort order of the rows of a partition; None to keep the order in which they are read.
        sort_order_id: the id of the table's sort order that equals ``order``, if any.
        left_alone: the live files that are not in a group, by the reason; see `Grouping`.
        more_partitions: the expected number of files that files left alone for this reason would become.
        busy: the partitions that are left alone because they changed too recently; None if that is not a condition.
        overlaps: the files that overlap others; None if they are not a condition.
    """

    table: Table
    branch: str
    base: Snapshot | None
    options: CompactionOptions
    found: LiveFiles | None
    groups: Sequence[FileGroup]
    remaining_files: int
    spec: PartitionSpec
    order: RowOrder | None = None
    sort_order_id: int | None = None
    left_alone: Mapping[str, pa.Table] = field(default_factory=dict)
    more_partitions: int = 0
    busy: BusyPartitions | None = None
    overlaps: Overlaps | None = None

    @property
    def input_bytes(self) -> int:
        """Bytes to read."""
        return sum(group.bytes for group in self.groups)

    @property
    def keeps_sequence_number(self) -> bool:
        """Whether new files have the sequence number of the plan, so that later equality deletes apply to them."""
        return self.options.keeps_sequence_number(self.table.metadata.format_version)

    @property
    def written_schema(self) -> Schema:
        """The columns that are copied, including row ids if the table has them."""
        return moved_schema(self.table.schema, self.table.metadata)  # check: row-ids-of-compaction

    def writing(self, operation_id: str) -> WriteSettings:
        """Return the settings for writing files, without the sort order."""
        return WriteSettings.of(
            self.table,
            operation_id,
            target_bytes=self.options.write_max_bytes,
            spec=self.spec,
            schema=self.written_schema,
        )

    def with_statistics(self) -> CompactionPlan:
        """Return the plan with the statistics of the files of its groups, to which those of new files are compared.

        Raises:
            CorruptFileError: a manifest cannot be read any more.
        """
        if not self.groups:
            return self
        return _with_columns(self.with_names(), self.live.statistics(numbers_of(self.groups)))

    def with_names(self) -> CompactionPlan:
        """Return the plan with the paths and the formats of the files of its groups."""
        if not self.groups or "file_path" in self.groups[0].files.column_names:
            return self
        names = self.live.take(numbers_of(self.groups), ("file_path", "file_format"))
        return _with_columns(self, names)

    def order_in(self, group: FileGroup) -> RowOrder | None:
        """Return the order in which a group's rows are written: grouped by partition."""
        if self.order is None or not group.moves_rows:
            return self.order
        return replace(self.order, fields=(*partition_fields(self.spec), *self.order.fields))

    def reading(self, deletes: Sequence[DeleteFile]) -> ReadSettings:
        """Return the settings for reading files with these deletes, in the table's current schema."""
        return ReadSettings.of(self.table, projection=self.written_schema, deletes=deletes)

    @property
    def copied_bytes(self) -> int:
        """The least size of a row group that is copied: an eighth of the table's."""
        return PARQUET_ROW_GROUP_BYTES.of(self.table.properties) // _LARGE_PART

    def row_groups_to_copy(self, group: FileGroup) -> int:
        """Return how many row groups of a group are copied if their files allow it; 0 if none may be.

        Rows are not copied with their deletes or their ids, to another partition or in another order.
        """
        mode = self.options.copy_row_groups
        if mode == COPY_NEVER or self.order is not None or not group.has_file_of(self.copied_bytes):
            return 0
        spec_ids = pc.unique(group.files["spec_id"]).to_pylist()
        same_place = not group.moves_rows and spec_ids == [self.spec.spec_id]
        has_row_ids = self.written_schema is not self.table.schema
        is_parquet = DATA_FORMAT.of(self.table.properties) == "parquet"
        if not (same_place and is_parquet) or has_row_ids:
            return 0
        sizes = row_group_sizes(group.files)
        fitting = (sizes >= self.copied_bytes) & (sizes <= self.options.most_copied_bytes)
        if mode == COPY_AUTO and 2 * fitting.sum() < len(sizes):
            return 0
        if self.deletes(group.numbers):  # check: deletes-of-copies
            return 0
        return int(fitting.sum())

    def nan_counts(self, files: pa.Table) -> list[dict[int, int]]:
        """Return how many NaN some files have, by the id of the column; columns without a count are left out."""
        found: list[dict[int, int]] = [{} for _ in range(files.num_rows)]
        for leaf in leaves(self.table.schema):
            if isinstance(leaf.kind, FloatType | DoubleType):
                counts = count_array(files, "nan_value_counts", leaf.field_id).to_pylist()
                for own, count in zip(found, counts, strict=True):
                    if count is not None and count >= 0:
                        own[leaf.field_id] = count
        return found

    @property
    def live(self) -> LiveFiles:
        """The live files; none for an empty branch."""
        return no_files(self.table) if self.found is None else self.found

    def deletes(self, numbers: Integers) -> tuple[DeleteFile, ...]:
        """Return the distinct delete files that may apply to some live files."""
        return self.live.deletes_of(numbers)

    def slices(self, groups: Sequence[FileGroup]) -> list[list[FileSlice]]:
        """Return the files of each of some groups as slices for tasks, in order."""
        # Arrow joins the chunks of a column each time that rows of it are taken.
        slices = iter(slices_at(self.live, numbers_of(groups)))
        return [list(itertools.islice(slices, group.files.num_rows)) for group in groups]

    def facts(self) -> CompactionFacts:
        """Return the plan's figures for the outcome."""
        numbers = numbers_of(self.groups)
        return CompactionFacts(
            groups=len(self.groups),
            input_files=len(numbers),
            input_bytes=self.input_bytes,
            input_delete_files=len(self.deletes(numbers)),
            expected_output_files=sum(group.expected_files for group in self.groups),
            row_groups_to_copy=sum(map(self.row_groups_to_copy, self.groups)),
            sorted_by=described_order(self.order, self.table.schema) if self.order else None,
            depth=self.overlaps.depth if self.overlaps else None,
            expected_depth=self.overlaps.expected if self.overlaps else None,
            remaining_files=self.remaining_files if self.options.is_limited else None,
            busy_partitions=len(self.busy.names) if self.busy else None,
            rhythm=self.busy.rhythm.facts() if self.busy and self.busy.rhythm else None,
            file_groups=self._groups(),
            left_alone={
                reason: self._left_alone(reason, files) for reason, files in self.left_alone.items()
            },
            total_data_files=self.live.count,
            total_files_size=self.live.bytes,
        )

    def _left_alone(self, reason: str, files: pa.Table) -> LeftAlone:
        moved = reason == MORE_PARTITIONS
        return LeftAlone(
            files=files.num_rows,
            bytes=pc.sum(files[_SIZE]).as_py(),
            expected_output_files=self.more_partitions if moved else None,
            spec_id=self.spec.spec_id if moved else None,
        )

    def explained(self) -> Explanation:
        """Return why files are left alone, by the reason and the partition."""
        known, found = self._partitions(), []
        for reason, files in self.left_alone.items():
            sizes, by_spec = files[_SIZE].to_numpy(), self.live.places(files["number"].to_numpy())
            for spec_id, own, places in sorted(by_spec, key=itemgetter(0)):
                named = known[spec_id]
                codes, inverse = np.unique(named.codes[places], return_inverse=True)
                counts = np.bincount(inverse).tolist()
                totals = np.zeros(len(codes), np.int64)
                np.add.at(totals, inverse, sizes[own])
                names = [named.names[code] for code in codes.tolist()]
                found += [
                    (reason, name, count, total)
                    for name, count, total in zip(names, counts, totals.tolist(), strict=True)
                ]
        return Explanation(
            noun="files",
            columns=("reason", "partition", "files", "bytes"),
            # The partitions with the most files are the ones that are asked about.
            groups=sorted(found, key=lambda item: -item[2]),
            item_columns=("reason", "partition", "file", "bytes"),
            items=partial(self._alone, known),
        )

    def _alone(self, known: Mapping[int, PartitionNames]) -> Iterator[tuple[str, str, str, int]]:
        """Yield each file that is left alone: the reason, the partition, the path and the size."""
        for reason, files in self.left_alone.items():
            owners, rows = np.zeros((2, files.num_rows), np.int64)
            for spec_id, own, places in self.live.places(files["number"].to_numpy()):
                owners[own], rows[own] = spec_id, places
            sizes = files[_SIZE].to_numpy()
            for spec_id, row, size in zip(owners.data, rows.data, sizes.data, strict=True):
                named, entries = known[spec_id], self.live.by_spec[spec_id]
                path = entries["file_path"][row].as_py()
                yield reason, named.names[named.codes[row]], path, size

    def partition_of(self, group: FileGroup) -> str | None:
        """Return the partition of a group's files; None if they are in several."""
        return self._common_partition(group, self._partitions())

    def _partitions(self) -> dict[int, PartitionNames]:
        """Return the names of the live files' partitions, by spec id."""
        return {
            spec_id: partition_names(entries, spec_id, self.table.metadata)
            for spec_id, entries in self.live.by_spec.items()
        }

    def _common_partition(
        self, group: FileGroup, known: Mapping[int, PartitionNames]
    ) -> str | None:
        names: set[str] = set()
        for spec_id, _, places in self.live.places(group.numbers):
            partitions = known[spec_id]
            codes = np.unique(partitions.codes[places])
            names.update(partitions.names[code] for code in codes[:2].tolist())
        return names.pop() if len(names) == 1 else None

    def _groups(self) -> list[GroupFacts]:
        known = self._partitions()
        return [
            GroupFacts(
                number=group.number,
                partition=self._common_partition(group, known),
                files=group.files.num_rows,
                bytes=group.bytes,
                rows=group.rows,
                expected_output_files=group.expected_files,
                reasons=group.reasons(self.options),
            )
            for group in self.groups
        ]


def plan_compaction(
    table: Table,
    options: CompactionOptions,
    *,
    branch: str = ancestry.MAIN,
    engine_of: EngineOf = in_this_process,
) -> CompactionPlan:
    """Choose the files of a branch's head to rewrite.

    Args:
        table: the table.
        options: thresholds.
        branch: the branch.
        engine_of: returns the engine that reads manifests of some bytes; None for this process.

    Raises:
        RefusedError: the table cannot be written, or contains files that lake cannot rewrite.
        NotFoundError: there is no such branch, spec or column.
    """
    require_writable(table, branch)
    spec = _output_spec(table, options)
    order = _order(table, options)
    head = ancestry.branch_head(table.metadata, branch)
    condition = None
    if options.where is not None:
        condition = bind_filter(parse_filter(options.where), table.schema)
    moves = len(table.metadata.specs()) > 1 and not spec.is_unpartitioned()
    # Statistics are most of a manifest's bytes.
    compared = {item.source_id for item in spec.fields} if moves else set()
    if order is not None and options.where_overlap is not None:
        compared |= {item.source_id for item in order.fields}
    rhythm = None if head is None else rhythm_of(table.metadata, options, branch)
    is_idle_asked = rhythm is not None or options.changed_before_ms is not None
    columns = (
        *_COLUMNS,
        *(FILTER_COLUMNS if compared else ()),
        *(("sort_order_id",) if options.old_sort_orders else ()),
        *(ACTIVITY_COLUMNS if is_idle_asked else ()),
        *(("content",) if condition is not None else ()),
        *(("first_row_id",) if table.metadata.format_version >= ROW_LINEAGE_SINCE else ()),
    )
    found = None
    if head is not None:
        fields = compared if condition is None else compared | filter_columns(condition)
        found = live_files(
            table, head, condition, columns=columns, fields=fields, engine_of=engine_of
        )
    busy = None if found is None else busy_partitions(found, options, rhythm)
    overlaps = None
    if found is not None and order is not None and options.where_overlap is not None:
        overlaps = find_overlaps(table, found.by_spec, order.fields, options, spec, busy)
    groups, remaining_files, left_alone, more_partitions = (
        Grouping([], 0, {})
        if found is None
        else choose_files(table, found, options, spec, busy=busy, overlaps=overlaps)
    )
    plan = CompactionPlan(
        table=table,
        branch=branch,
        base=head,
        options=options,
        found=found,
        groups=groups,
        remaining_files=remaining_files,
        spec=spec,
        order=order,
        sort_order_id=order_id_of(table.metadata, order.fields) if order else None,
        left_alone=left_alone,
        more_partitions=more_partitions,
        busy=busy,
        overlaps=overlaps,
    )
    if groups:
        plan.writing("").check_data_files()
    return plan


def _with_columns(plan: CompactionPlan, columns: pa.Table) -> CompactionPlan:
    """Return a plan with more columns of the files of its groups."""
    groups, start = [], 0
    for group in plan.groups:
        files = group.files
        for name, column in zip(columns.column_names, columns.columns, strict=True):
            files = files.append_column(name, column.slice(start, files.num_rows))
        start += files.num_rows
        groups.append(replace(group, files=files))
    return replace(plan, groups=groups)


def _expected_partitions(
    table: Table, entries: Mapping[int, pa.Table], spec: PartitionSpec
) -> Callable[[Integers], int] | None:
    if spec.is_unpartitioned() or not set(entries) - {spec.spec_id}:
        return None
    return PartitionCounts(entries, spec, table.metadata.specs(), table.schema).expected


def _order(table: Table, options: CompactionOptions) -> RowOrder | None:
    """Return the requested order.

    Raises:
        InvalidRequestError: the table has no sort order, or a column's type cannot be ordered.
        NotFoundError: a column does not exist.
        RefusedError: lake does not support the table's sort order.
    """
    if options.strategy == BINPACK:
        return None
    if options.strategy in CURVES:
        return RowOrder(
            curve=curve_columns(options.by or "", table.schema),
            is_hilbert=options.strategy == HILBERT,
            text_bytes=options.text_bytes,
            most_bytes=options.most_curve_bytes,
        )
    if options.by is not None:
        fields: SortFields | None = tuple(sort_order(options.by, table.schema).fields)
    else:
        fields = table_order(table.metadata, table.schema)
    if fields is None:
        raise RefusedError(f"lake does not support the sort order of {table.identifier}", hint=_BY)
    if not fields:
        raise InvalidRequestError(f"{table.identifier} has no sort order", hint=_BY)
    return RowOrder(fields=fields)


def _output_spec(table: Table, options: CompactionOptions) -> PartitionSpec:
    specs = table.metadata.specs()
    spec_id = table.spec.spec_id if options.spec_id is None else options.spec_id
    if spec_id not in specs:
        known = ", ".join(str(item) for item in sorted(specs))
        raise NotFoundError(f"the table has no partition spec {spec_id}", hint=f"specs: {known}")
    return specs[spec_id]


def depth_now(
    plan: CompactionPlan, table: Table, *, engine_of: EngineOf = in_this_process
) -> DepthFacts | None:
    """Return how deep the files of a plan's branch overlap now; None if overlaps are not a condition of the plan.

    Raises:
        LakeError: a manifest cannot be read.
    """
    head = ancestry.branch_head(table.metadata, plan.branch)
    if plan.overlaps is None or plan.order is None or head is None:
        return None
    condition = None
    if plan.options.where is not None:
        condition = bind_filter(parse_filter(plan.options.where), table.schema)
    columns = (*_COLUMNS, "content", *FILTER_COLUMNS)
    found = live_files(
        table, head, condition, columns=columns, with_deletes=False, engine_of=engine_of
    )
    return depth_in_order(table, found.by_spec, plan.order.fields, plan.spec)


def choose_files(
    table: Table,
    found: LiveFiles,
    options: CompactionOptions,
    spec: PartitionSpec,
    *,
    busy: BusyPartitions | None = None,
    overlaps: Overlaps | None = None,
) -> Grouping:
    """Choose the live files that are rewritten.

    Args:
        table: the table.
        found: its live files, with the columns ``record_count``, ``file_size_in_bytes`` and `DATA_COLUMNS`, with
            `FILTER_COLUMNS` if the table has several specs, and with ``sort_order_id`` if old sort orders are chosen.
        options: thresholds.
        spec: the spec that files are written with.
        busy: the partitions that are left alone; None for none.
        overlaps: the files that overlap others; None if they are not a condition.
    """
    entries = _with_delete_counts(found, options)
    if overlaps is not None:
        return plan_overlapping(entries, options, spec, overlaps)
    return plan_groups(
        entries,
        options,
        busy=None if busy is None else busy.mask,
        table_spec_id=table.spec.spec_id,
        output_spec=spec,
        least_bytes=_least_file_bytes(table),
        expected_partitions=_expected_partitions(table, entries, spec),
        sort_order_id=table.metadata.default_sort_order_id,
    )


def _with_delete_counts(found: LiveFiles, options: CompactionOptions) -> dict[int, pa.Table]:
    """Return the live data files with the deletes of each counted; see `plan_groups`."""
    tables = {}
    for spec_id, entries in found.by_spec.items():
        counts = deleted = np.zeros(entries.num_rows, np.int64)
        if found.delete_manifests.num_rows:
            pairs = found.pairs[spec_id]
            counts, deleted = pairs.counts.copy(), pairs.deleted_rows
            # Key bounds exclude some, as in Java; they are compared only if the threshold may be reached.
            for row in np.flatnonzero(counts >= max(options.delete_file_threshold, 1)):
                counts[row] = len(pairs.ordinals(np.array([row])))
        tables[spec_id] = entries.append_column("delete_files", pa.array(counts)).append_column(
            "deleted_rows", pa.array(deleted)
        )
    return tables


def _least_file_bytes(table: Table) -> int:
    leaves = sum(table.schema.find_type(i).is_primitive for i in table.schema.field_ids)
    return least_file_bytes(leaves, DATA_FORMAT.of(table.properties))
