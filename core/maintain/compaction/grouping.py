"""Choose the files that are rewritten together: pure functions over Arrow columns.

Source: Iceberg's SizeBasedFileRewritePlanner and BinPackRewriteFilePlanner. The choice is the same, file by
file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.maintain.compaction.options import BINPACK, CompactionOptions
from lake.core.maintain.compaction.partition_counts import Integers
from lake.core.spec.types.partition_codes import partition_codes

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec

# A split is this much larger than its share, so that rounding does not produce an extra file.
_SPLIT_OVERHEAD = 5 * 1024
_TOLERATED_EXCESS = 1.1
# Why files are left alone: they have the right size and few deletes; their partition has no other file to rewrite, or
# too few; the rewrite would produce more files, because of the target size, or because the table's spec has more
# partitions for their rows than there are files.
RIGHT_SIZE, ONLY_FILE, FEW_FILES, MORE_FILES = "right-size", "only-file", "few-files", "more-files"
MORE_PARTITIONS = "more-partitions"
# Files of partitions that other writers changed lately.
BUSY = "busy"
# Files of the table's spec and sort order, if those are rewritten that are not.
CURRENT = "current"
# What a plan keeps of the entries of files that are rewritten; their names take more memory than all of it.
_GROUP_COLUMNS = {
    *("record_count", "file_size_in_bytes", "split_offsets"),
    *("spec_id", "delete_files", "deleted_rows"),
}


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of a group that one task rewrites.

    Args:
        first_file: index of the file that contains the first row.
        end_file: index of the last file that contains a row, plus 1.
        skip: rows of the first file that belong to the previous range.
        rows: the number of rows.
        input_bytes: the range's share of the group's bytes.
    """

    first_file: int
    end_file: int
    skip: int
    rows: int
    input_bytes: int


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are rewritten together, in order.

    Args:
        number: index of the group in the plan.
        files: one row per file: some columns of its entry, ``spec_id``, ``delete_files``, ``deleted_rows`` (by
            deletes that apply to this file only), and ``number``, its number among all live files. Names and
            statistics are added before files are rewritten (`CompactionPlan.with_names`, `with_statistics`).
        output_files: the number of files that Java would write.
        split_bytes: input bytes for one output file.
        moves_rows: whether rows may move to a partition other than their file's.
        partitions: the expected number of partitions to which they move.
    """

    number: int
    files: pa.Table
    output_files: int
    split_bytes: int
    moves_rows: bool = False
    partitions: int = 1

    @property
    def expected_files(self) -> int:
        """The number of files that are expected."""
        return self.output_files + self.partitions - 1

    @property
    def paths(self) -> list[str]:
        """The files' paths, once they have names."""
        return self.files["file_path"].to_pylist()  # type: ignore[no-any-return]

    @property
    def numbers(self) -> Integers:
        """The files' numbers among all live files."""
        return _column(self.files, "number")

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        return int(_sizes(self.files).sum())

    def has_file_of(self, least_bytes: int) -> bool:
        """Whether a file has at least this size."""
        return bool((_sizes(self.files) >= least_bytes).any())

    @property
    def rows(self) -> int:
        """The total number of rows of the files."""
        return int(_column(self.files, "record_count").sum())

    def reasons(self, options: CompactionOptions) -> list[str]:
        """Return why the files are rewritten, in the words of the JSON output."""
        sizes = _sizes(self.files)
        found = {
            "small-files": (sizes < options.min_size).any(),
            "large-files": (sizes > options.max_size).any(),
            "deletes": _has_many_deletes(self.files, options).any(),
        }
        if options.where_overlap is not None:
            return ["overlap"]
        if options.chooses_old:
            kinds = {"old-specs": options.old_specs, "old-sort-orders": options.old_sort_orders}
            return [name for name, is_chosen in kinds.items() if is_chosen]
        # Every file is rewritten, so its size is not the reason.
        if options.takes_every_file:
            return ["rewrite-all"]
        return [name for name, holds in found.items() if holds]

    def ranges(self) -> list[RowRange]:
        """Cut the group's rows, in order, into one range per output file, each of ``split_bytes``.

        Rows that may move to any partition are not cut: each range would write separate files in each partition.
        """
        return self.cut(self.split_bytes, 1 if self.moves_rows else self.output_files)

    def cut(self, piece_bytes: int, pieces: int) -> list[RowRange]:
        """Cut the group's rows, in order, into ``pieces`` ranges of ``piece_bytes``; the last takes the rest."""
        if self.rows == 0:
            return [RowRange(0, self.files.num_rows, 0, 0, self.bytes)]
        bytes_before = np.concatenate([[0], np.cumsum(_sizes(self.files))])
        rows_before = np.concatenate([[0], np.cumsum(_column(self.files, "record_count"))])
        inner = np.arange(1, pieces) * min(piece_bytes, self.bytes)
        cuts = np.interp(inner, bytes_before, rows_before).astype(np.int64)
        edges = np.unique(np.concatenate([[0], cuts, [rows_before[-1]]]))
        at_bytes = np.interp(edges, rows_before, bytes_before).astype(np.int64)
        at_bytes[[0, -1]] = 0, bytes_before[-1]
        first = np.maximum(np.searchsorted(rows_before, edges[:-1], side="right") - 1, 0)
        end = np.searchsorted(rows_before, edges[1:], side="left")
        return [
            RowRange(
                first_file=int(first[index]),
                end_file=int(end[index]),
                skip=int(edges[index] - rows_before[first[index]]),
                rows=int(edges[index + 1] - edges[index]),
                input_bytes=int(at_bytes[index + 1] - at_bytes[index]),
            )
            for index in range(len(edges) - 1)
        ]


def numbers_of(groups: Sequence[FileGroup]) -> Integers:
    """Return the numbers of the files of groups, one group after the other."""
    return np.concatenate([np.zeros(0, np.int64), *(group.numbers for group in groups)])


def row_group_sizes(files: pa.Table) -> Integers:
    """Return the bytes of the row groups of files, by the offsets in their entries; without, a file has one.

    Args:
        files: with the columns ``file_size_in_bytes`` and ``split_offsets``.
    """
    sizes, offsets = _sizes(files), one_array(files["split_offsets"])
    starts = pc.list_flatten(offsets).to_numpy(zero_copy_only=False)
    owners = pc.list_parent_indices(offsets).to_numpy()
    ends = sizes[owners]
    is_inner = owners[1:] == owners[:-1]
    ends[:-1][is_inner] = starts[1:][is_inner]
    whole = np.bincount(owners, minlength=len(sizes)) == 0
    return np.concatenate([np.maximum(ends - starts, 0), sizes[whole]])


_UNLIMITED = 2**63 - 1


class Grouping(NamedTuple):
    """The files that are rewritten, and those that are not.

    Args:
        groups: the groups to rewrite.
        remaining: the number of files that `max_files` and `max_bytes` leave out.
        left_alone: the other files by the reason: their ``number`` and ``file_size_in_bytes``.
        more_partitions: the expected number of files that those left alone for this reason would become.
    """

    groups: list[FileGroup]
    remaining: int
    left_alone: Mapping[str, pa.Table]
    more_partitions: int = 0


def plan_groups(  # noqa: PLR0913 - each option is used alone
    by_spec: Mapping[int, pa.Table],
    options: CompactionOptions,
    *,
    table_spec_id: int,
    output_spec: PartitionSpec,
    least_bytes: int = 0,
    expected_partitions: Callable[[Integers], int] | None = None,
    sort_order_id: int | None = None,
    busy: npt.NDArray[np.bool_] | None = None,
) -> Grouping:
    """Choose files and group them, the oldest first.

    A group that is expected to become more files is skipped, unless the rewrite splits files that are too large,
    applies deletes, sorts rows or moves them to a spec that was asked for.

    Args:
        by_spec: live data files by spec id, canonical entry columns in planning order, with
            ``delete_files`` and ``deleted_rows``.
        options: thresholds.
        table_spec_id: the table's spec. Its files are grouped by partition; files of other specs form one group.
        output_spec: the spec that files are written with.
        least_bytes: the minimal size of a written file, see `least_file_bytes`.
        expected_partitions: returns the number of partitions of ``output_spec`` for the rows of some files, by
            their index among all files; None if it is 1.
        sort_order_id: the id of the table's sort order.
        busy: which of all files are left alone; None for none.
    """
    if not by_spec:
        return Grouping([], 0, {})
    files, partitions = numbered(by_spec, table_spec_id)
    # Sorted by the order of their commits. Columns are copied once, after all groups are known.
    order = np.argsort(_column(files, "sequence_number"), kind="stable")
    is_busy = np.zeros(len(order), np.bool_) if busy is None else busy[order]
    busy_files, order = order[is_busy], order[~is_busy]
    sizes, has_many_deletes = _sizes(files)[order], _has_many_deletes(files, options)[order]
    alone: dict[str, list[Integers]] = {
        reason: []
        for reason in (BUSY, CURRENT, RIGHT_SIZE, ONLY_FILE, FEW_FILES, MORE_FILES, MORE_PARTITIONS)
    }
    alone[BUSY].append(busy_files)
    more_files = 0
    reason, chosen = RIGHT_SIZE, _wrong_size(sizes, options) | has_many_deletes
    if options.chooses_old:
        reason, chosen = CURRENT, _is_old(files, options, output_spec, sort_order_id)[order]
    chosen |= options.takes_every_file and not options.chooses_old
    alone[reason].append(order[~chosen])
    order, sizes, has_many_deletes = order[chosen], sizes[chosen], has_many_deletes[chosen]
    gains = _gains(files, options, output_spec, least_bytes)[order]
    groups: list[Integers] = []
    partitions_of = _counted(expected_partitions, order, _moves(files, output_spec)[order])
    remaining = len(order) if options.max_files is None else options.max_files
    bytes_left = _UNLIMITED if options.max_bytes is None else options.max_bytes
    left = 0
    for rows in _by_partition(partitions[order]):
        for packed in pack(sizes[rows].tolist(), options.max_group_size, options.max_group_files):
            group = rows[packed]
            outputs = output_files(_expected_bytes(sizes[group], options), options)
            why_not = None
            if not options.takes_every_file:
                if not _worth_it(sizes[group], has_many_deletes[group], options):
                    why_not = ONLY_FILE if len(group) == 1 else FEW_FILES
                elif not gains[group].any():
                    why_not = _becomes_more(outputs, partitions_of(group), len(group))
            if why_not is not None:
                alone[why_not].append(order[group])
                if why_not == MORE_PARTITIONS:
                    more_files += outputs + partitions_of(group) - 1
                continue
            taken = _that_fit(group[:remaining], sizes, bytes_left)
            if len(taken):
                groups.append(taken)
            remaining -= len(taken)
            bytes_left -= int(sizes[taken].sum())
            left += len(group) - len(taken)
    groups = in_job_order(groups, sizes, options.job_order)
    counts = [partitions_of(group) for group in groups]
    planned = file_groups(files, [order[group] for group in groups], options, output_spec, counts)
    return Grouping(planned, left, left_alone(files, alone), more_files)


def file_groups(
    files: pa.Table,
    groups: Sequence[Integers],
    options: CompactionOptions,
    output_spec: PartitionSpec,
    partitions: Sequence[int],
) -> list[FileGroup]:
    """Return groups of files, by the index of each file, with the partitions to which the rows of a group move."""
    if not groups:
        return []
    kept, numbers = (
        [name for name in files.column_names if name in _GROUP_COLUMNS],
        np.concatenate(groups),
    )
    grouped = files.select(kept).take(pa.array(numbers)).append_column("number", pa.array(numbers))
    ends = np.cumsum([len(group) for group in groups]).tolist()
    return [
        _group(number, grouped.slice(end - len(group), len(group)), options, output_spec, count)
        for number, (group, end, count) in enumerate(zip(groups, ends, partitions, strict=True))
    ]


def _that_fit(group: Integers, sizes: Integers, most_bytes: int) -> Integers:
    """Return the first files of a group whose bytes fit; none if that is only one of several."""
    fitting = int(np.searchsorted(np.cumsum(sizes[group]), most_bytes, side="right"))
    return group[: fitting if fitting > 1 or fitting == len(group) else 0]


def left_alone(files: pa.Table, by_reason: Mapping[str, list[Integers]]) -> dict[str, pa.Table]:
    """Return the files that are left alone by the reason, see `Grouping`."""
    sizes = _sizes(files)
    every = {reason: np.concatenate([sizes[:0], *found]) for reason, found in by_reason.items()}
    return {
        reason: pa.table({"number": numbers, "file_size_in_bytes": sizes[numbers]})
        for reason, numbers in every.items()
        if len(numbers)
    }


def output_files(input_bytes: int, options: CompactionOptions) -> int:
    """Return how many files Java writes for ``input_bytes``: no small remainder, no file above the maximum size."""
    target = options.target_size
    if input_bytes < target:
        return 1
    with_rest = math.ceil(input_bytes / target)
    without_rest = input_bytes // target
    if input_bytes % target > options.min_size:
        return with_rest
    average = input_bytes // without_rest
    if average < min(_TOLERATED_EXCESS * target, options.write_max_bytes):
        return without_rest
    return with_rest


def least_file_bytes(columns: int, file_format: str) -> int:
    """Estimate the bytes of a file with one row, most of which are its footer.

    Args:
        columns: the number of leaf columns of the schema.
        file_format: ``parquet``, ``orc`` or ``avro``.
    """
    # Measured on files that lake writes.
    each = 200 if file_format == "parquet" else 50
    return 100 + each * columns


def split_bytes(input_bytes: int, options: CompactionOptions) -> int:
    """Return how many input bytes Java writes to one output file: full files and one remainder."""
    share = input_bytes // output_files(input_bytes, options) + _SPLIT_OVERHEAD
    return min(max(share, options.target_size), options.write_max_bytes)


def pack(sizes: Sequence[int], most_bytes: int, most_files: int) -> list[slice]:
    """Pack adjacent files, in order, into bins within both limits; a file larger than a bin gets its own.

    Source: Iceberg's BinPacking.ListPacker.pack with a lookback of 1.
    """
    ends: list[int] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > most_bytes or index - start >= most_files):
            ends.append(index)
            start, total = index, 0
        total += size
    edges = [0, *ends, len(sizes)] if sizes else []
    return [slice(begin, end) for begin, end in itertools.pairwise(edges)]


def _group(
    number: int,
    files: pa.Table,
    options: CompactionOptions,
    output_spec: PartitionSpec,
    partitions: int,
) -> FileGroup:
    total = _expected_bytes(_sizes(files), options)
    stays = np.all(_column(files, "spec_id") == output_spec.spec_id)
    return FileGroup(
        number,
        files,
        output_files(total, options),
        split_bytes(total, options),
        moves_rows=not (stays or output_spec.is_unpartitioned()),
        partitions=partitions,
    )


def numbered(by_spec: Mapping[int, pa.Table], table_spec_id: int) -> tuple[pa.Table, Integers]:
    """Return all files in one table, in the order of their numbers, and their partitions.

    A partition is a number. Number 0 is the partition whose values are all NULL; files of other specs get it too.
    """
    parts, numbers = [], []
    for spec_id, entries in by_spec.items():
        count = entries.num_rows
        parts.append(entries.drop_columns(["partition"]))
        own = spec_id == table_spec_id
        numbers.append(_partition_numbers(entries) if own else np.zeros(count, np.int64))
    # The columns of entries are in many chunks, and to join them would copy them.
    return pa.concat_tables(parts), np.concatenate(numbers)


def _partition_numbers(entries: pa.Table) -> Integers:
    """Return a number per file, equal for equal partitions; 0 if all partition values are NULL."""
    struct = entries.schema.field("partition").type
    nulls = pa.chunked_array([pa.array([{field.name: None for field in struct}], struct)])
    codes, null = partition_codes([entries["partition"], nulls])
    return np.where(codes == null[0], 0, codes + 1)


def _by_partition(partitions: Integers) -> Iterator[Integers]:
    """Yield each partition's rows in order; the partition of the first row comes first."""
    if not len(partitions):
        return
    order = np.argsort(partitions, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(partitions[order])) + 1)
    yield from sorted(groups, key=lambda rows: int(rows[0]))


def _wrong_size(sizes: Integers, options: CompactionOptions) -> npt.NDArray[np.bool_]:
    return (sizes < options.min_size) | (sizes > options.max_size)


def _is_old(
    files: pa.Table,
    options: CompactionOptions,
    output_spec: PartitionSpec,
    sort_order_id: int | None,
) -> npt.NDArray[np.bool_]:
    """Return which files a change of the spec or of the sort order left behind."""
    found = np.zeros(files.num_rows, np.bool_)
    if options.old_specs:
        found |= _moves(files, output_spec)
    if options.old_sort_orders:
        same = pc.fill_null(pc.equal(files["sort_order_id"], sort_order_id), fill_value=False)
        found |= ~same.to_numpy(zero_copy_only=False)
    return found


def _has_many_deletes(files: pa.Table, options: CompactionOptions) -> npt.NDArray[np.bool_]:
    """Return which files have enough deletes to be rewritten for that reason alone."""
    rows = _column(files, "record_count")
    deleted = np.minimum(_column(files, "deleted_rows"), rows)
    too_high = (rows > 0) & (deleted >= options.delete_ratio * rows) & (deleted > 0)
    return too_high | (_column(files, "delete_files") >= options.delete_file_threshold)


def _worth_it(
    sizes: Integers, has_many_deletes: npt.NDArray[np.bool_], options: CompactionOptions
) -> bool:
    count, total = len(sizes), int(sizes.sum())
    enough_files = count > 1 and count >= options.min_input_files
    enough_content = count > 1 and total > options.target_size
    return (
        enough_files or enough_content or total > options.max_size or bool(has_many_deletes.any())
    )


def _gains(
    files: pa.Table, options: CompactionOptions, output_spec: PartitionSpec, least_bytes: int
) -> npt.NDArray[np.bool_]:
    """Return which files a rewrite improves even if it produces more files."""
    if options.strategy != BINPACK:
        return np.ones(files.num_rows, np.bool_)
    moved = _moves(files, output_spec) & (options.spec_id is not None)
    deleted = _column(files, "delete_files") > 0
    # Each part gets its own footer; the part including the footer must not be too large again.
    splits = options.target_size + least_bytes <= options.max_size
    too_large = (_sizes(files) > options.max_size) & splits
    return np.asarray(moved | deleted | too_large, np.bool_)


def _counted(
    expected_partitions: Callable[[Integers], int] | None,
    order: Integers,
    moves: npt.NDArray[np.bool_],
) -> Callable[[Integers], int]:
    """Return a function that counts the partitions that a group's files may become; see `plan_groups`."""

    def count(group: Integers) -> int:
        known = expected_partitions if moves[group].any() else None
        return 1 if known is None else max(known(order[group]), 1)

    return count


def _becomes_more(by_size: int, partitions: int, files: int) -> str | None:
    """Return the reason if a rewrite is expected to make more files: the target size, or the partitions."""
    if by_size > files:
        return MORE_FILES
    return MORE_PARTITIONS if by_size + partitions - 1 > files else None


def _moves(files: pa.Table, output_spec: PartitionSpec) -> npt.NDArray[np.bool_]:
    return np.asarray(_column(files, "spec_id") != output_spec.spec_id, np.bool_)


def _expected_bytes(sizes: Integers, options: CompactionOptions) -> int:
    return int(sizes.sum() * options.compression_factor)


def in_job_order(groups: list[Integers], sizes: Integers, order: str) -> list[Integers]:
    """Return groups in the order in which they are rewritten."""
    measure, _, direction = order.partition("-")
    if measure == "none":
        return groups

    def measured(group: Integers) -> int:
        return int(sizes[group].sum()) if measure == "bytes" else len(group)

    return sorted(groups, key=measured, reverse=direction == "desc")


def _sizes(files: pa.Table) -> Integers:
    return _column(files, "file_size_in_bytes")


def _column(files: pa.Table, name: str) -> Integers:
    """Return a column of integers; NULL (version 1 has no sequence numbers) is 0."""
    column = files[name]
    values: Any = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    return np.asarray(values, dtype=np.int64)
