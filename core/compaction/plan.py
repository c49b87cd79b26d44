"""Which files are rewritten together: pure functions over Arrow columns.

Source: Iceberg's SizeBasedFileRewritePlanner and BinPackRewriteFilePlanner, whose choice this is, file by
file, so that a user of either finds the same work done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lake.core.compaction.options import CompactionOptions

_ENOUGH_LARGER = 1.1


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that become files of their own, in order.

    Args:
        number: its place in the plan.
        entries: canonical entry columns, one row per file; all of one spec.
        output_files: how many files Java would write.
    """

    number: int
    entries: pa.Table
    output_files: int

    @property
    def paths(self) -> list[str]:
        """The files' paths."""
        return self.entries["file_path"].to_pylist()  # type: ignore[no-any-return]

    @property
    def bytes(self) -> int:
        """The files' sizes together."""
        return int(np.sum(self.entries["file_size_in_bytes"].to_numpy()))

    @property
    def rows(self) -> int:
        """The files' rows together."""
        return int(np.sum(self.entries["record_count"].to_numpy()))

    def parts(self) -> list[pa.Table]:
        """Cut the files, in order, into one part per output file, about equal in bytes.

        Fewer files than outputs stay one part, whose writer closes a file after its share of the rows.
        """
        if self.output_files < 2 or self.entries.num_rows < self.output_files:  # noqa: PLR2004
            return [self.entries]
        ends = np.cumsum(self.entries["file_size_in_bytes"].to_numpy())
        share = ends[-1] / self.output_files
        wanted = np.searchsorted(ends, share * np.arange(1, self.output_files), side="left") + 1
        cuts = sorted({0, *(int(cut) for cut in wanted), self.entries.num_rows})
        return [self.entries.slice(begin, end - begin) for begin, end in itertools.pairwise(cuts)]


def plan_groups(
    by_spec: Mapping[int, pa.Table], options: CompactionOptions, output_spec_id: int
) -> list[FileGroup]:
    """Choose and group files.

    Args:
        by_spec: live data files by spec id, in planning order.
        options: thresholds.
        output_spec_id: files of another spec form one group without partition.
    """
    chosen: list[pa.Table] = []
    left = options.max_files
    for entries in _partitions(by_spec, output_spec_id):
        wanted = (
            entries if options.rewrite_all else entries.filter(pa.array(_misfits(entries, options)))
        )
        for group in _packed(wanted, options):
            if not (options.rewrite_all or _worth_it(group, options)):
                continue
            if left is not None:
                group = group.slice(0, left)  # noqa: PLW2901 - the last group is cut
                left -= group.num_rows
            if group.num_rows:
                chosen.append(group)
    ordered = _in_job_order(chosen, options.job_order)
    return [
        FileGroup(number, group, output_files(_bytes(group), options))
        for number, group in enumerate(ordered)
    ]


def output_files(input_bytes: int, options: CompactionOptions) -> int:
    """Return how many files Java makes of so many bytes: no small rest, no file beyond the largest."""
    target = options.target_bytes
    if input_bytes < target:
        return 1
    with_rest = math.ceil(input_bytes / target)
    without_rest = input_bytes // target
    if input_bytes % target > options.min_bytes:
        return with_rest
    average = input_bytes // without_rest
    if average < min(_ENOUGH_LARGER * target, options.write_max_bytes):
        return int(without_rest)
    return with_rest


def pack(sizes: Sequence[int], most_bytes: int, most_files: int) -> list[list[int]]:
    """Pack neighbours, in order, into bins within both limits; a file larger than a bin sits alone.

    Source: Iceberg's BinPacking.ListPacker.pack with a lookback of 1.
    """
    bins: list[list[int]] = []
    size = 0
    for index, length in enumerate(sizes):
        if bins and size + length <= most_bytes and len(bins[-1]) < most_files:
            bins[-1].append(index)
            size += length
        else:
            bins.append([index])
            size = length
    return bins


def _partitions(by_spec: Mapping[int, pa.Table], output_spec_id: int) -> Iterable[pa.Table]:
    for spec_id, entries in by_spec.items():
        if entries.num_rows == 0:
            continue
        if spec_id != output_spec_id or entries.schema.field("partition").type.num_fields == 0:
            yield entries
            continue
        keys: dict[Any, list[int]] = {}
        for index, partition in enumerate(entries["partition"].to_pylist()):
            keys.setdefault(tuple(partition.values()), []).append(index)
        for rows in keys.values():
            yield entries.take(pa.array(rows, pa.int64()))


def _misfits(entries: pa.Table, options: CompactionOptions) -> Any:
    sizes = entries["file_size_in_bytes"].to_numpy()
    return (sizes < options.min_bytes) | (sizes > options.max_bytes)


def _packed(entries: pa.Table, options: CompactionOptions) -> list[pa.Table]:
    sizes = entries["file_size_in_bytes"].to_pylist()
    bins = pack(sizes, options.max_group_bytes, options.max_group_files)
    return [entries.slice(rows[0], len(rows)) for rows in bins]


def _worth_it(group: pa.Table, options: CompactionOptions) -> bool:
    count, size = group.num_rows, _bytes(group)
    enough_files = count > 1 and count >= options.min_input_files
    enough_content = count > 1 and size > options.target_bytes
    return enough_files or enough_content or size > options.max_bytes


def _in_job_order(groups: list[pa.Table], order: str) -> list[pa.Table]:
    measure, _, direction = order.partition("-")
    if measure == "none":
        return groups
    key = _bytes if measure == "bytes" else pa.Table.__len__
    return sorted(groups, key=key, reverse=direction == "desc")


def _bytes(group: pa.Table) -> int:
    return int(np.sum(group["file_size_in_bytes"].to_numpy())) if group.num_rows else 0
