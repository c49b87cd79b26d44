"""Choose the files that overlap too many others in the sort columns, and the files that are sorted with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.sorting.overlaps import Ranges, chosen_clusters, joined
from lake.core.maintain.compaction.facts import DepthFacts
from lake.core.maintain.compaction.file_ranges import depth_facts, file_ranges
from lake.core.maintain.compaction.grouping import (
    BUSY,
    Grouping,
    file_groups,
    in_job_order,
    left_alone,
    numbered,
    pack,
)
from lake.core.maintain.compaction.options import CompactionOptions

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.sorting import SortField

    from lake.core.maintain.compaction.concurrency.busy_partitions import BusyPartitions
    from lake.core.table.catalogs.catalog import Table

# Why a file is in no cluster, and what this is called in the plan.
_FEW, _UNKNOWN, _OTHER_SPEC, _BUSY = -1, -2, -3, -4
FEW_OVERLAPS = "few-overlaps"
_REASONS = {_FEW: FEW_OVERLAPS, _UNKNOWN: "no-bounds", _OTHER_SPEC: "other-spec", _BUSY: BUSY}


@dataclass(frozen=True, slots=True)
class Overlaps:
    """The files of a plan by the files that they overlap.

    Args:
        clusters: for each file the number of the files with which it is sorted; a negative one says why a file
            is left alone.
        ranges: the range of each file; a range that is not known is a key before all others.
        depth: how many files contain the place where a file begins.
        expected: the same after the rewrite.
    """

    clusters: Int64s
    ranges: Ranges
    depth: DepthFacts
    expected: DepthFacts

    def is_sorted(self, files: Int64s) -> bool:
        """Whether some files, by their index, do not overlap each other."""
        return not self.ranges.take(files).overlaps().any()


def find_overlaps(
    table: Table,
    by_spec: Mapping[int, pa.Table],
    fields: tuple[SortField, ...],
    options: CompactionOptions,
    spec: PartitionSpec,
    busy: BusyPartitions | None = None,
) -> Overlaps:
    """Choose the files of the table's partition spec that overlap more than `options.where_overlap` others.

    Args:
        table: the table.
        by_spec: live data files by spec id, with the columns for bounds.
        fields: the sort order.
        options: the number, and the size of new files.
        spec: the spec that files are written with; files of others are left alone.
        busy: the partitions that are left alone; None for none.

    Raises:
        InvalidRequestError: the bounds of files do not show the order.
    """
    places, found = _known(table, by_spec, fields, spec)
    count = sum(entries.num_rows for entries in by_spec.values())
    sizes = np.concatenate(
        [np.zeros(0, np.int64), *(_sizes(entries) for entries in by_spec.values())]
    )
    chosen = chosen_clusters(
        found, sizes[places], options.where_overlap or 0, partial(_pieces, options=options)
    )
    clusters = np.concatenate(
        [
            np.zeros(0, np.int64),
            *(
                np.full(entries.num_rows, _UNKNOWN if spec_id == spec.spec_id else _OTHER_SPEC)
                for spec_id, entries in by_spec.items()
            ),
        ]
    )
    if busy is not None:
        # A cluster contains files of one partition, so it is busy as a whole.
        is_busy = busy.mask
        clusters[is_busy] = _BUSY
        chosen = np.where(is_busy[places], _BUSY, chosen)
        inner = chosen >= 0
        chosen[inner] = np.unique(chosen[inner], return_inverse=True)[1]
    clusters[places] = chosen
    every = Ranges(np.full(count, -1), np.full(count, -1))
    every.low[places], every.high[places] = found.low, found.high
    return Overlaps(
        clusters,
        every,
        depth_facts(found.depths()),
        _expected(found, chosen, sizes[places], options),
    )


def depth_in_order(
    table: Table,
    by_spec: Mapping[int, pa.Table],
    fields: tuple[SortField, ...],
    spec: PartitionSpec,
) -> DepthFacts:
    """Return the depth of the files of a spec, see `Overlaps`.

    Raises:
        InvalidRequestError: the bounds of files do not show the order.
    """
    return depth_facts(_known(table, by_spec, fields, spec)[1].depths())


def _known(
    table: Table,
    by_spec: Mapping[int, pa.Table],
    fields: tuple[SortField, ...],
    spec: PartitionSpec,
) -> tuple[Int64s, Ranges]:
    """Return the places of the files of a spec whose ranges are known, and the ranges.

    Raises:
        InvalidRequestError: the bounds of files do not show the order.
    """
    start, places, ranges = 0, [np.zeros(0, np.int64)], []
    for spec_id, entries in by_spec.items():
        if spec_id == spec.spec_id:
            found = file_ranges(entries, fields, table.schema, table.properties)
            if found is None:
                name = table.schema.find_column_name(fields[0].source_id)
                raise InvalidRequestError(
                    f"{Option.WHERE_OVERLAP} compares the bounds of {name}, which do not show the order of its files",
                    hint="bucket() hides the order, and write.metadata.metrics may keep no bounds of the column",
                )
            places.append(found.known + start)
            ranges.append(found.ranges)
        start += entries.num_rows
    return np.concatenate(places), joined(ranges)


def _sizes(entries: pa.Table) -> Int64s:
    sizes: Int64s = pc.fill_null(entries["file_size_in_bytes"], 0).to_numpy().astype(np.int64)
    return sizes


def _pieces(totals: Int64s, options: CompactionOptions) -> Int64s:
    """Return into how many files some bytes are sorted at most: ranges of rows are cut by a sample."""
    pieces: Int64s = 2 * -(-totals // options.target_size)
    return np.maximum(pieces, 1)


def _expected(
    ranges: Ranges, clusters: Int64s, sizes: Int64s, options: CompactionOptions
) -> DepthFacts:
    """Return the depth if the files of each cluster are replaced by files that do not overlap."""
    inner = clusters >= 0
    totals = np.zeros(int(clusters.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, clusters[inner], sizes[inner])
    after = joined([ranges.take(~inner), ranges.take(inner).hulls(clusters[inner])])
    files = np.maximum(totals // options.target_size, 1)
    weights = np.concatenate([np.ones(int(np.count_nonzero(~inner)), np.int64), files])
    return depth_facts(after.depths(), weights)


def plan_overlapping(
    by_spec: Mapping[int, pa.Table],
    options: CompactionOptions,
    spec: PartitionSpec,
    overlaps: Overlaps,
) -> Grouping:
    """Group the files of each cluster, in the order of their ranges.

    A cluster that does not fit in the limits of the run is left to the next one: a part of it would, sorted, overlap
    the rest as before. If it is larger than a group, the next run sorts what still overlaps.

    Args:
        by_spec: live data files by spec id, as for `plan_groups`.
        options: the limits.
        spec: the spec that files are written with.
        overlaps: the clusters.
    """
    if not by_spec:
        return Grouping([], 0, {})
    files, _ = numbered(by_spec, spec.spec_id)
    sizes = files["file_size_in_bytes"].to_numpy().astype(np.int64)
    order = np.lexsort((overlaps.ranges.low, overlaps.clusters))
    alone = {
        reason: [np.flatnonzero(overlaps.clusters == code)] for code, reason in _REASONS.items()
    }
    chosen = order[overlaps.clusters[order] >= 0]
    edges = np.flatnonzero(np.diff(overlaps.clusters[chosen])) + 1
    groups: list[Int64s] = []
    most_files = len(chosen) if options.max_files is None else options.max_files
    most_bytes = int(sizes.sum()) if options.max_bytes is None else options.max_bytes
    remaining = 0
    for cluster in np.split(chosen, edges):
        limits = options.max_group_size, options.max_group_files
        for packed in pack(sizes[cluster].tolist(), *limits):
            group = cluster[packed]
            size = int(sizes[group].sum())
            if overlaps.is_sorted(group):
                alone[FEW_OVERLAPS].append(group)
            elif len(group) > most_files or size > most_bytes:
                remaining += len(group)
            else:
                groups.append(group)
                most_files, most_bytes = most_files - len(group), most_bytes - size
    groups = in_job_order(groups, sizes, options.job_order)
    planned = file_groups(files, groups, options, spec, [1] * len(groups))
    return Grouping(planned, remaining, left_alone(files, alone))
