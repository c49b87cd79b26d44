"""How the files of a table overlap in its sort order: a filter on the sort columns reads those that do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lake.core.base.arrow import Int64s
from lake.core.maintain.compaction.file_ranges import depth_facts, file_ranges
from lake.core.maintain.health.facts import OverlapFacts, PartitionOverlapFacts
from lake.core.spec.types.sort_orders import table_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake.core.maintain.health.survey import Survey

_WORST = 10


def overlap_of(found: Survey, names: Callable[[set[int]], dict[int, str]]) -> OverlapFacts | None:
    """Return how files overlap; None if the table has no sort order, or one that bounds do not show.

    Args:
        found: the files, with the bounds of the sort columns.
        names: returns the names of partitions, by their numbers.

    Raises:
        LakeError: a property of the table has a value that is not allowed.
    """
    table = found.table
    fields = table_order(table.metadata, table.schema)
    if not fields or not found.has_bounds:
        return None
    start, depths, partitions = 0, [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for entries in found.found.by_spec.values():
        own = file_ranges(entries, fields, table.schema, table.properties)
        if own is None:
            return None
        depths.append(own.ranges.depths())
        partitions.append(found.partitions[start + own.known])
        start += entries.num_rows
    depth, partition = np.concatenate(depths), np.concatenate(partitions)
    every = depth_facts(depth)
    return OverlapFacts(
        files=len(depth),
        unknown_files=start - len(depth),
        average_depth=every.average,
        worst_depth=every.worst,
        partitions=_worst(depth, partition, names),
    )


def _worst(
    depths: Int64s, partitions: Int64s, names: Callable[[set[int]], dict[int, str]]
) -> list[PartitionOverlapFacts]:
    """Return the partitions with the greatest average depth, without those whose files do not overlap."""
    numbers, inverse, counts = np.unique(partitions, return_inverse=True, return_counts=True)
    averages = np.bincount(inverse, weights=depths) / np.maximum(counts, 1)
    greatest = np.zeros(len(numbers), np.int64)
    np.maximum.at(greatest, inverse, depths)
    chosen = [
        place
        for place in np.argsort(-averages, kind="stable")[:_WORST].tolist()
        if greatest[place] > 1
    ]
    known = names({int(numbers[place]) for place in chosen}) if chosen else {}
    return [
        PartitionOverlapFacts(
            partition=known[int(numbers[place])],
            files=int(counts[place]),
            average_depth=round(float(averages[place]), 2),
            worst_depth=int(greatest[place]),
        )
        for place in chosen
    ]
