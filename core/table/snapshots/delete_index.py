"""Match delete files to data files, over columns, by sequence numbers and scopes.

A deletion vector applies to one data file; other position deletes of that file are then ignored.
A position delete file applies to one data file if it references only that one, otherwise to the files of its
spec and partition; it deletes rows of files up to its own sequence number. An equality delete applies to older
files only: of its spec and partition, or of the whole table if its spec is unpartitioned.
Source: https://iceberg.apache.org/spec/#scan-planning and Iceberg Java's DeleteFileIndex.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.base.errors import CorruptFileError
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.table.manifests.api import files_of
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DeleteFile
from lake.core.table.snapshots.delete_scopes import PUFFIN, is_global, referenced_paths
from lake.core.table.snapshots.equality_delete_pruning import KeyRanges

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema


# The columns of delete files that an index needs, and those that show when they were added.
DELETE_COLUMNS = (
    "status",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "value_counts",
    "null_value_counts",
    "lower_bounds",
    "upper_bounds",
    "equality_ids",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
# The columns of data files that it needs; the bounds serve to exclude equality deletes.
DATA_COLUMNS = ("sequence_number", "file_path", "partition")
DATA_BOUNDS = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
_NO_SCOPE = -1
_NO_FILE = -1
# The number of pairs of data and delete files whose bounds are compared at once.
_MOST_PAIRS = 4_000_000
_DESCRIBED = (
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "equality_ids",
    "content_offset",
    "content_size_in_bytes",
)


class DeleteIndex:
    """The delete files of a snapshot, indexed by the data files to which they may apply.

    A delete file's ordinal is its position among all given entries, in the order of specs.
    """

    def __init__(
        self,
        by_spec: Mapping[int, pa.Table],
        specs: Mapping[int, PartitionSpec],
        schemas: Sequence[Schema],
        schema: Schema | None = None,
    ) -> None:
        """Take the entries of live delete files.

        Args:
            by_spec: their `DELETE_COLUMNS`, by spec id.
            specs: the table's specs, by id.
            schemas: the schemas to search for the types of keys, the preferred one first.
            schema: the schema that describes data files, so that their partitions are comparable with those of the
                delete files; the first of the others by default.

        Raises:
            CorruptFileError: a delete file lacks a required value, or two deletion vectors reference one file.
        """
        self.by_spec = {key: entries for key, entries in by_spec.items() if entries.num_rows}
        self.specs = specs
        self.schemas = schemas
        self._schema = schema or schemas[0]
        self._described: dict[int, DeleteFile] = {}
        tables = list(self.by_spec.values())
        sizes = [entries.num_rows for entries in tables]
        self.bases = dict(zip(self.by_spec, np.cumsum([0, *sizes]).tolist(), strict=False))
        self.count = sum(sizes)
        self.content = _numbers(tables, "content")
        self.sequence_numbers = _numbers(tables, "sequence_number")
        self.record_counts = _numbers(tables, "record_count")
        self.spec_ids = np.repeat(np.array(list(self.by_spec), np.int64), sizes)
        self.is_vector = _vectors(tables)
        self.paths = pa.concat_arrays(
            [referenced_paths(entries) for entries in tables] or [pa.array([], pa.binary())]
        )
        _check(self, tables)

    @property
    def equality_ids(self) -> list[int]:
        """The ids of all columns that equality deletes compare, in order."""
        lists = [one_array(entries["equality_ids"]) for entries in self.by_spec.values()]
        return sorted(
            {column for item in lists for column in pc.unique(item.flatten()).to_pylist()}
        )

    def pair(self, spec_id: int, entries: pa.Table) -> DeletePairing:
        """Pair data files of one spec with their delete files.

        Args:
            spec_id: their spec.
            entries: `DATA_COLUMNS`, and `DATA_BOUNDS` to exclude equality deletes by their bounds.

        Raises:
            CorruptFileError: a deletion vector is older than its data file.
        """
        return DeletePairing(self, spec_id, entries)

    def equality_entries(self) -> tuple[Int64s, pa.Table]:
        """Return the ordinals of all equality deletes and the columns that describe their keys."""
        ordinals = np.flatnonzero(self.content == EQUALITY_DELETES)
        columns = ["equality_ids", *DATA_BOUNDS]
        tables = [entries.select(columns) for entries in self.by_spec.values()]
        return ordinals, pa.concat_tables(tables).take(pa.array(ordinals))

    def describe(self, ordinals: Int64s) -> list[DeleteFile]:
        """Return delete files in the form that tasks need."""
        known = np.fromiter(self._described, np.int64, len(self._described))
        missing = np.setdiff1d(ordinals, known)
        for spec_id, entries in self.by_spec.items():
            base = self.bases[spec_id]
            own = missing[(missing >= base) & (missing < base + entries.num_rows)]
            if len(own):
                rows = entries.select(_DESCRIBED).take(pa.array(own - base))
                files = files_of(rows, spec=self.specs[spec_id], schema=self._schema)
                for ordinal, file in zip(own.tolist(), files, strict=True):
                    self._described[ordinal] = self._delete_file(ordinal, file)
        return [self._described[ordinal] for ordinal in ordinals.tolist()]

    def _delete_file(self, ordinal: int, file: Any) -> DeleteFile:
        path = self.paths[ordinal].as_py()
        return DeleteFile(
            path=file.path,
            format=file.format.upper(),
            content=file.content,
            spec_id=file.spec_id,
            partition=file.partition,
            record_count=file.record_count,
            size_bytes=file.size_bytes,
            sequence_number=int(self.sequence_numbers[ordinal]),
            equality_ids=file.equality_ids,
            referenced_data_file=None if path is None else path.decode(errors="replace"),
            content_offset=file.content_offset,
            content_size_bytes=file.content_size_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Intervals:
    """For each data file an interval of some ordering of delete files.

    Args:
        ordinals: delete files, grouped by scope, in the order of their sequence numbers.
        start: the start of each data file's interval.
        end: its end (exclusive).
    """

    ordinals: Int64s
    start: Int64s
    end: Int64s

    @property
    def counts(self) -> Int64s:
        """The number of delete files for each data file."""
        return self.end - self.start

    def covered(self, numbers: Int64s, records: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return the delete files that apply to data files, and the data files and their rows for each.

        Args:
            numbers: the sequence number of each data file.
            records: its number of rows.

        Returns:
            The ordinals of the delete files, and for each the number of data files, the sum of their rows, and
            which of them has the lowest sequence number.
        """
        files, rows = (np.zeros(len(self.ordinals) + 1, np.int64) for _ in range(2))
        for sums, values in ((files, np.ones_like(records)), (rows, records)):
            np.add.at(sums, self.start, values)
            np.subtract.at(sums, self.end, values)
        # All intervals of a scope have the same end, and that of its oldest data file contains the others.
        some = np.flatnonzero(self.counts > 0)
        some = some[np.lexsort((numbers[some], self.start[some], self.end[some]))]
        some = some[np.unique(self.end[some], return_index=True)[1]]
        oldest = np.repeat(some, self.counts[some])
        hit = np.cumsum(files[:-1]) > 0
        return (
            self.ordinals[hit],
            np.cumsum(files[:-1])[hit],
            np.cumsum(rows[:-1])[hit],
            oldest,
        )

    def without(self, rows: Mask) -> _Intervals:
        """Return the intervals, with those of some data files empty."""
        return _Intervals(self.ordinals, self.start, np.where(rows, self.start, self.end))

    def total(self, values: Int64s) -> Int64s:
        """Return for each data file the sum of the values of its delete files."""
        sums = np.concatenate([[0], np.cumsum(values[self.ordinals])])
        found: Int64s = sums[self.end] - sums[self.start]
        return found

    def of(self, rows: Int64s) -> Int64s:
        """Return the distinct delete files of some data files."""
        edges = np.zeros(len(self.ordinals) + 1, np.int64)
        np.add.at(edges, self.start[rows], 1)
        np.add.at(edges, self.end[rows], -1)
        return self.ordinals[np.cumsum(edges[:-1]) > 0]


class DeletePairing:
    """The data files of one spec with the delete files that may apply to them."""

    def __init__(self, index: DeleteIndex, spec_id: int, entries: pa.Table) -> None:
        self._index = index
        self._entries = entries
        self._ranges: tuple[Int64s, KeyRanges] | None = None
        numbers = _numbers([entries], "sequence_number")
        levels = np.unique(index.sequence_numbers)
        # The first rank whose sequence number is not less, or is greater, than a data file's.
        since, after = (np.searchsorted(levels, numbers, side) for side in ("left", "right"))
        ranks = np.searchsorted(levels, index.sequence_numbers)
        path_scopes, of_deletes = self._path_scopes()
        partition_scopes, of_partitions = self._partition_scopes(spec_id)
        is_position = index.content == POSITION_DELETES
        by_path = of_deletes != _NO_SCOPE
        everywhere = [spec for spec in index.by_spec if is_global(index.specs[spec])]
        is_global_spec = np.isin(index.spec_ids, everywhere)
        zeros = np.zeros(len(numbers), np.int64)

        def intervals(chosen: Mask, scopes: Int64s, wanted: Int64s, first: Int64s) -> _Intervals:
            return _intervals(np.flatnonzero(chosen), scopes, ranks, wanted, first, len(levels))

        vectors = index.is_vector
        self._vectors = intervals(vectors, of_deletes, path_scopes, zeros)
        _check_vectors(index, self._vectors, numbers, entries)
        have_vector = self._vectors.counts > 0
        chosen = is_position & by_path & ~vectors
        self._by_path = intervals(chosen, of_deletes, path_scopes, since).without(have_vector)
        chosen = is_position & ~by_path & (of_partitions != _NO_SCOPE)
        self._by_partition = intervals(chosen, of_partitions, partition_scopes, since).without(
            have_vector
        )
        chosen = ~is_position & ~is_global_spec & (of_partitions != _NO_SCOPE)
        self._keys = intervals(chosen, of_partitions, partition_scopes, after)
        chosen = ~is_position & is_global_spec
        self._global_keys = intervals(chosen, np.zeros(index.count, np.int64), zeros, after)

    def _path_scopes(self) -> tuple[Int64s, Int64s]:
        """Return the paths of data files and delete files as numbers; -1 for a path that is not in both."""
        paths = pc.unique(self._index.paths.drop_null())
        own = self._entries["file_path"].cast(pa.binary())
        return _ordinals(one_array(pc.index_in(own, value_set=paths))), _ordinals(
            pc.index_in(self._index.paths, value_set=paths)
        )

    def _partition_scopes(self, spec_id: int) -> tuple[Int64s, Int64s]:
        """Return the partitions of the data files, and of the delete files with the same spec."""
        index = self._index
        of_deletes = np.full(index.count, _NO_SCOPE, np.int64)
        deletes = index.by_spec.get(spec_id)
        if deletes is None:
            return np.full(self._entries.num_rows, _NO_SCOPE, np.int64), of_deletes
        own, of_entries = partition_codes([self._entries["partition"], deletes["partition"]])
        base = index.bases[spec_id]
        of_deletes[base : base + deletes.num_rows] = of_entries
        return own, of_deletes

    @property
    def data_files(self) -> int:
        """The number of data files."""
        return int(self._entries.num_rows)

    @property
    def counts(self) -> Int64s:
        """The number of delete files that may apply to each data file, before key bounds are compared."""
        total: Int64s = sum(intervals.counts for intervals in self._all())  # type: ignore[assignment]
        return total

    @property
    def deleted_rows(self) -> Int64s:
        """The number of rows of each data file that are deleted by delete files for that file alone."""
        counts = self._index.record_counts
        return self._vectors.total(counts) + self._by_path.total(counts)

    def deleted_bounds(self, records: Int64s) -> tuple[Int64s, Int64s]:
        """Return the least and the most rows of each data file that its delete files delete.

        Args:
            records: the number of rows of each data file.
        """
        counts = self._index.record_counts
        vectors = np.minimum(self._vectors.total(counts), records)
        named = vectors + self._by_path.total(counts) + self._by_partition.total(counts)
        by_key = self._keys.counts + self._global_keys.counts > 0
        return vectors, np.where(by_key, records, np.minimum(named, records))

    def reach(self, records: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return to how much each delete file of the index may apply, before key bounds are compared.

        Args:
            records: the number of rows of each data file.

        Returns:
            For each delete file, by its ordinal: the number of data files, the sum of their rows, and the row of
            one with the lowest sequence number (-1 if there are none).
        """
        files, rows = (np.zeros(self._index.count, np.int64) for _ in range(2))
        oldest = np.full(self._index.count, _NO_FILE, np.int64)
        numbers = _numbers([self._entries], "sequence_number")
        # For the row -1.
        known = np.append(numbers, np.iinfo(np.int64).max)
        for intervals in self._all():
            found, some_files, some_rows, first = intervals.covered(numbers, records)
            files[found] += some_files
            rows[found] += some_rows
            oldest[found] = np.where(known[first] < known[oldest[found]], first, oldest[found])
        return files, rows, oldest

    def ordinals(self, rows: Int64s) -> Int64s:
        """Return the distinct delete files of some data files (given as row numbers), in order."""
        positions = [
            intervals.of(rows) for intervals in (self._vectors, self._by_path, self._by_partition)
        ]
        keys = [
            self._matching_keys(intervals, rows) for intervals in (self._keys, self._global_keys)
        ]
        return np.unique(np.concatenate([*positions, *keys]))

    def vectors(self, rows: Int64s) -> Int64s:
        """Return the deletion vectors of some data files."""
        return np.sort(self._vectors.of(rows))

    def position_files(self, rows: Int64s) -> Int64s:
        """Return the position delete files, other than deletion vectors, of some data files."""
        return np.union1d(self._by_path.of(rows), self._by_partition.of(rows))

    def count_position_files(self, chosen: Mask) -> Int64s:
        """Return how many position delete files, other than deletion vectors, apply to each data file.

        Args:
            chosen: the delete files that are counted, by ordinal.
        """
        ones = chosen.astype(np.int64)
        return self._by_path.total(ones) + self._by_partition.total(ones)

    def count_equality_files(self, chosen: Mask) -> Int64s:
        """Return how many equality delete files may apply to each data file, before key bounds are compared.

        Args:
            chosen: the delete files that are counted, by ordinal.
        """
        ones = chosen.astype(np.int64)
        return self._keys.total(ones) + self._global_keys.total(ones)

    def _all(self) -> tuple[_Intervals, ...]:
        return (
            self._vectors,
            self._by_path,
            self._by_partition,
            self._keys,
            self._global_keys,
        )

    def _matching_keys(self, intervals: _Intervals, rows: Int64s) -> Int64s:
        """Return the equality deletes whose keys may be in one of the data files."""
        rows = rows[intervals.counts[rows] > 0]
        found = intervals.of(rows)
        hit = np.zeros(len(found), np.bool_)
        for _, matching in self._key_matches(intervals, rows, found):
            hit |= matching.any(axis=0)
        return found[hit]

    def _key_matches(
        self, intervals: _Intervals, rows: Int64s, found: Int64s
    ) -> Iterator[tuple[Int64s, Mask]]:
        """Yield batches of data files, and which of the equality deletes may match keys of each."""
        if not len(found):
            return
        known = set(DATA_BOUNDS) <= set(self._entries.column_names)
        if known and self._ranges is None:
            every, deletes = self._index.equality_entries()
            self._ranges = every, KeyRanges(self._entries, deletes, self._index.schemas)
        # A delete file's position in the interval shows whether it is newer than a data file.
        positions = np.empty(self._index.count, np.int64)
        positions[intervals.ordinals] = np.arange(len(intervals.ordinals))
        at = positions[found]
        step = max(1, _MOST_PAIRS // len(found))
        for files in (rows[first : first + step] for first in range(0, len(rows), step)):
            start, end = intervals.start[files][:, None], intervals.end[files][:, None]
            matching = (at >= start) & (at < end)
            if self._ranges is not None:
                ordinals, ranges = self._ranges
                matching &= ranges.may_match(files, np.searchsorted(ordinals, found))
            yield files, matching

    def touched(self) -> Mask:
        """Return to which data files a delete file may apply, also judged by key bounds."""
        by_position = self._by_position()
        return by_position | self.touched_by_key(by_position)

    def touched_by_key(self, known: Mask | None = None) -> Mask:
        """Return to which data files an equality delete may apply, also judged by key bounds.

        Args:
            known: data files that need no answer: theirs is False.
        """
        found = np.zeros(self._entries.num_rows, np.bool_)
        skipped = found if known is None else known
        for intervals in (self._keys, self._global_keys):
            rows = np.flatnonzero((intervals.counts > 0) & ~(found | skipped))
            for some, matching in self._key_matches(intervals, rows, intervals.of(rows)):
                found[some] |= matching.any(axis=1)
        return found

    def _by_position(self) -> Mask:
        counts = self._vectors.counts + self._by_path.counts + self._by_partition.counts
        found: Mask = counts > 0
        return found


def _intervals(
    chosen: Int64s, scopes: Int64s, ranks: Int64s, wanted: Int64s, first: Int64s, levels: int
) -> _Intervals:
    """Return the chosen delete files of each data file's scope, from a given rank of sequence numbers on.

    Args:
        chosen: ordinals of delete files.
        scopes: each delete file's scope.
        ranks: each delete file's rank by sequence number.
        wanted: each data file's scope, -1 for none.
        first: the least rank for each data file.
        levels: the number of ranks.
    """
    width = levels + 1
    keys = scopes[chosen] * width + ranks[chosen]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    start = np.searchsorted(keys, wanted * width + first)
    end = np.where(wanted == _NO_SCOPE, start, np.searchsorted(keys, (wanted + 1) * width))
    return _Intervals(chosen[order], start, end)


def _check(index: DeleteIndex, tables: Sequence[pa.Table]) -> None:
    """Refuse delete files whose scope cannot be determined."""
    for entries in tables:
        rows = entries.select(["file_path", "content", "equality_ids"])
        keys = rows.filter(pc.equal(rows["content"], EQUALITY_DELETES))
        lengths = pc.fill_null(pc.list_value_length(keys["equality_ids"]), 0)
        if bad := keys.filter(pc.equal(lengths, 0))["file_path"].to_pylist():
            raise CorruptFileError(f"equality delete file {bad[0]} names no columns")
    strange = set(np.unique(index.content).tolist()) - {POSITION_DELETES, EQUALITY_DELETES}
    if strange:
        raise CorruptFileError(f"delete files have the unknown content {sorted(strange)}")
    vectors = index.paths.filter(pa.array(index.is_vector))
    if vectors.null_count or pc.any(pc.equal(pc.binary_length(vectors), 0)).as_py():
        raise CorruptFileError("a deletion vector does not reference a data file")
    if len(pc.unique(vectors)) < len(vectors):
        counted = pc.value_counts(vectors)
        twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")[0]
        raise CorruptFileError(f"several deletion vectors reference {twice.as_py().decode()}")


def _check_vectors(
    index: DeleteIndex, vectors: _Intervals, numbers: Int64s, entries: pa.Table
) -> None:
    rows = np.flatnonzero(vectors.counts)
    own = index.sequence_numbers[vectors.ordinals[vectors.start[rows]]]
    late = rows[own < numbers[rows]]
    if len(late):
        row = int(late[0])
        raise CorruptFileError(
            f"the deletion vector of {entries['file_path'][row].as_py()} is older than the file, "
            f"whose sequence number is {numbers[row]}"
        )


def _vectors(tables: Sequence[pa.Table]) -> Mask:
    found = [
        pc.equal(pc.utf8_upper(entries["file_format"].cast(pa.string())), PUFFIN)
        for entries in tables
    ]
    masks = [one_array(mask).to_numpy(zero_copy_only=False) for mask in found]
    return np.concatenate([np.zeros(0, np.bool_), *masks])


def _numbers(tables: Sequence[pa.Table], name: str) -> Int64s:
    columns = [
        one_array(entries[name]).cast(pa.int64()).to_numpy(zero_copy_only=False)
        for entries in tables
    ]
    return np.concatenate([np.zeros(0, np.int64), *columns])


def _ordinals(found: pa.Array) -> Int64s:
    positions_in_scope: Int64s = found.fill_null(_NO_SCOPE).to_numpy().astype(np.int64)
    return positions_in_scope
