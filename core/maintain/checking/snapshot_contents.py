"""What the files of one snapshot contradict together: duplicates, totals, deletes without data, row ids.

Paths and partitions are kept as hashes, and those of many files on disk, in parts: files that are compared with each
other by their paths are in one part. Hashes that are equal by chance may hide a finding, and never cause one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.data.keys.encoding import hash_keys, partition_of
from lake.core.data.sorting.part_spool import PARTS, PartSpool
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.maintain.checking.findings import MOST_DESCRIBED, Finding
from lake.core.table.flink.commits import JOB_ID
from lake.core.table.manifests.api import DELETED, read_manifests
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots.ancestry import added_at
from lake.core.table.snapshots.delete_scopes import PUFFIN, is_global, referenced_paths
from lake.core.table.snapshots.run_ids import OPERATION_ID

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage

Hashes = npt.NDArray[np.uint64]

# Kinds of delete files. A position delete file is of one data file or of a partition, an equality delete file of a
# partition or of the whole table.
_VECTOR, _OF_FILE, _OF_PARTITION, _KEYS, _GLOBAL_KEYS = range(5)
# What is kept of all live files: the hash of the location, the position of the manifest among all, and the rows.
_KEPT = pa.schema([("path", pa.uint64()), ("manifest", pa.int32()), ("records", pa.int64())])
NONE = _KEPT.empty_table()
# How much of the data files, and of the delete files, stays in memory: at most 800,000 files.
MEMORY_BYTES = 16 * 1024 * 1024
_ROWS = "the files of manifests"
# The first format version with row ids.
_ROW_IDS = 3


def live_files(
    entries: pa.Table,
    manifests: Int64s,
    metadata: TableMetadata,
    spec_id: int,
    *,
    of_deletes: bool,
    scopes: bool,
) -> pa.Table:
    """Return what is kept of live entries.

    Args:
        entries: the entries, of one spec.
        manifests: for each, the position of its manifest.
        metadata: the table's metadata.
        spec_id: their spec.
        of_deletes: whether the manifests contain delete files; otherwise they contain data files.
        scopes: whether partitions are compared, because the table has delete files.

    Returns:
        the columns `path`, `manifest` and `records`. If partitions are compared, also the sequence number
        (`sequence`) and the hash of the partition, or of that to which a delete file applies (`scope`). Of delete
        files, also their `kind` and the sequence number at which they were added (`added`). Of data files, also
        `first_row_id`, if the table's format has row ids.
    """
    found = pa.table(
        [pa.array(path_hashes(entries)), pa.array(manifests, pa.int32()), entries["record_count"]],
        schema=_KEPT,
    )
    if metadata.format_version >= _ROW_IDS and not of_deletes:
        found = found.append_column("first_row_id", entries["first_row_id"])
    if not scopes:
        return found
    scope = _partition_hashes(one_array(entries["partition"]), spec_id)
    if of_deletes:
        content = one_array(entries["content"]).to_numpy()
        everywhere = is_global(metadata.specs()[spec_id])
        kind, scope = _deletes(entries, content, scope, everywhere=everywhere)
        found = found.append_column("kind", pa.array(kind))
        found = found.append_column("added", entries["file_sequence_number"])
    found = found.append_column("sequence", entries["sequence_number"])
    return found.append_column("scope", pa.array(scope))


def path_hashes(entries: pa.Table, columns: Sequence[str] = ("file_path",)) -> Hashes:
    """Return a hash per entry, equal for entries of the same file."""
    arrays = [
        normalize_locations(entries[name]) if name == "file_path" else one_array(entries[name])
        for name in columns
    ]
    return hash_keys(pa.RecordBatch.from_arrays(arrays, names=list(columns)))


def _deletes(
    entries: pa.Table, content: Int64s, partition: Hashes, *, everywhere: bool
) -> tuple[npt.NDArray[np.int8], Hashes]:
    """Return the kinds of delete files, and the hashes of what they apply to."""
    by_key = content == EQUALITY_DELETES
    named = referenced_paths(entries).cast(pa.large_binary())
    has_name = named.is_valid().to_numpy(zero_copy_only=False)
    is_vector = np.asarray(
        pc.equal(one_array(entries["file_format"]), PUFFIN).to_numpy(zero_copy_only=False)
    )
    kind = np.where(has_name, _OF_FILE, _OF_PARTITION)
    kind[is_vector] = _VECTOR
    kind[by_key] = _GLOBAL_KEYS if everywhere else _KEYS
    scope = partition.copy()
    some = np.flatnonzero(has_name)
    texts = [item.decode(errors="replace") for item in named.take(pa.array(some)).to_pylist()]
    scope[some] = path_hashes(pa.table({"file_path": pa.array(texts, pa.string())}))
    scope[is_vector & ~has_name] = 0
    return kind.astype(np.int8), scope


def _partition_hashes(partition: pa.Array, spec_id: int) -> Hashes:
    children = {
        field.name: values
        for field, values in zip(partition.type, partition.flatten(), strict=True)
        if not pa.types.is_null(field.type)
    }
    columns = {"spec": pa.repeat(pa.scalar(spec_id, pa.int64()), len(partition)), **children}
    # More than one column, so that a spec's id alone is not hashed in another way.
    return hash_keys(pa.RecordBatch.from_pydict({**columns, "more": columns["spec"]}))


class LiveFiles:
    """The live files of all manifests (`live_files`)."""

    def __init__(self) -> None:
        self.data = PartSpool(_ROWS, _part_of_data, MEMORY_BYTES)
        self.deletes = PartSpool(_ROWS, _part_of_deletes, MEMORY_BYTES)

    def pairs(self) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
        """Yield all files in parts, each with the delete files that name data files of the part; None without files.

        Raises:
            StorageError: there is not enough space on disk.
        """
        spools = (self.data, self.deletes)
        if any(spool.is_stored for spool in spools):
            for spool in spools:
                spool.store()
        for number in range(PARTS):
            data, deletes = (spool.part(number) for spool in spools)
            if data is not None or deletes is not None:
                yield data, deletes


def _part_of_data(files: pa.RecordBatch) -> Int64s:
    return partition_of(_numbers(files, "path"), PARTS)


def _part_of_deletes(files: pa.RecordBatch) -> Int64s:
    """Return the part of the data file that a delete file names; any part for the others."""
    names_file = _numbers(files, "kind") <= _OF_FILE
    hashes = np.where(names_file, _numbers(files, "scope"), _numbers(files, "path"))
    return partition_of(hashes, PARTS)


class Contents:
    """The live files of one snapshot.

    Args:
        files: the files of all manifests.
        manifests: which manifests are the snapshot's, by their positions.
    """

    def __init__(self, files: LiveFiles, manifests: Mask) -> None:
        self._files = files
        self._manifests = manifests

    def _data(self) -> Iterator[pa.RecordBatch]:
        yield from map(self._own, self._files.data.parts())

    def _deletes(self) -> Iterator[pa.RecordBatch]:
        yield from map(self._own, self._files.deletes.parts())

    def _pairs(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        for data, deletes in self._files.pairs():
            yield self._own(data), self._own(deletes)

    def _own(self, files: pa.RecordBatch | None) -> pa.RecordBatch:
        if files is None:
            return _NO_FILES
        chosen = self._manifests[_numbers(files, "manifest")]
        # A filter copies all columns.
        return files if chosen.all() else files.filter(pa.array(chosen))

    def have(self, paths: Hashes) -> Mask:
        """Return for each hash of a path whether one of the files has it."""
        found = np.zeros(len(paths), np.bool_)
        for files in chain(self._data(), self._deletes()):
            found |= np.isin(paths, _numbers(files, "path"))
        return found

    def duplicates(self) -> Hashes:
        """Return the hashes of data files that occur twice."""
        found = [_repeated(_numbers(data, "path")) for data in self._data()]
        return np.concatenate([np.zeros(0, np.uint64), *found])

    def totals(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Compare the totals in a snapshot's summary."""
        actual = dict.fromkeys(_TOTALS, 0)
        for data, deletes in self._pairs():
            kind, deleted = (_numbers(deletes, name) for name in ("kind", "records"))
            found = (
                data.num_rows,
                deletes.num_rows,
                _numbers(data, "records").sum(),
                deleted[kind <= _OF_PARTITION].sum(),
                deleted[kind >= _KEYS].sum(),
            )
            for key, number in zip(_TOTALS, found, strict=True):
                actual[key] += int(number)
        summary = properties_of(snapshot)
        for key, number in actual.items():
            text = summary.get(key)
            if text is not None and text != str(number):
                message = f"{key} is {text[:40]}, the manifests contain {number}"
                yield Finding("T001", f"snapshot {snapshot.snapshot_id}", message)

    def overlaps(self) -> pa.Table:
        """Return data files with row ids that other data files have too, at most `MOST_DESCRIBED`."""
        last = self.last_row_id
        if not last:
            return NONE

        def part_of(files: pa.RecordBatch) -> Int64s:
            # Parts in the order of row ids.
            starts: Int64s = np.clip(_numbers(files, "first_row_id"), 0, last)
            return starts // (last // PARTS + 1)

        ordered = PartSpool(_ROWS, part_of, MEMORY_BYTES)
        for data in self._data():
            has_rows = pc.and_(data["first_row_id"].is_valid(), pc.greater(data["records"], 0))
            ordered.add(data.filter(pc.fill_null(has_rows, fill_value=False)))
        found, end, path = _Some(), np.iinfo(np.int64).min, np.uint64(0)
        for files in ordered.parts():
            paths, starts = _numbers(files, "path"), _numbers(files, "first_row_id")
            order = np.lexsort((paths, starts))
            ends = np.concatenate(([end], (starts + _numbers(files, "records"))[order]))
            np.maximum.accumulate(ends, out=ends)
            before = np.concatenate(([path], paths[order[:-1]]))
            bad = (starts[order] < ends[:-1]) & (paths[order] != before)
            found.add(files.take(pa.array(order[bad])))
            end, path = ends[-1], paths[order[-1]]
        ordered.close()
        return found.files

    @cached_property
    def last_row_id(self) -> int:
        """The number after the highest row id."""
        last = 0
        for data in self._data():
            if "first_row_id" in data.schema.names:
                first = data["first_row_id"]
                ends = pc.if_else(pc.greater_equal(first, 0), pc.add(first, data["records"]), None)
                last = max(last, pc.max(ends).as_py() or 0)
        return last

    def deletes(self, metadata: TableMetadata) -> dict[str, pa.Table]:
        """Return delete files by the code of what is wrong with them, at most `MOST_DESCRIBED` of each."""
        wide = _WideScopes()
        for deletes in self._deletes():
            wide.want(deletes)
        if wide.is_empty:
            return {}
        for data in self._data():
            wide.add(data)
        unusual = _unusual_numbers(metadata)
        found = defaultdict[str, _Some](_Some)
        for data, deletes in self._pairs():
            kind, scope = _numbers(deletes, "kind"), _numbers(deletes, "scope")
            sequence = _numbers(deletes, "sequence")
            oldest = wide.oldest(deletes)
            by_file, vector, by_key = kind <= _OF_FILE, kind == _VECTOR, kind >= _KEYS
            named = _Lowest(scope[by_file])
            named.add(_numbers(data, "path"), _numbers(data, "sequence"))
            oldest[by_file] = named.of(scope[by_file])
            with_own = (oldest == sequence) & np.isin(sequence, unusual)
            wrong = {
                "V003": vector & np.isin(scope, _repeated(scope[vector])),
                "V004": np.isin(scope, scope[vector]) & (kind == _OF_FILE),
                "V005": vector & (oldest == _NONE),
                "V006": vector & (oldest != _NONE) & (oldest > sequence),
                "E006": by_key & (with_own | wide.renumbered(deletes)),
                "E005": ~vector & (oldest > sequence),
            }
            for code, mask in wrong.items():
                found[code].add(deletes.filter(pa.array(mask)))
        return {code: some.files for code, some in found.items()}


# In the order in which `Contents.totals` counts.
_TOTALS = (
    "total-data-files",
    "total-delete-files",
    "total-records",
    "total-position-deletes",
    "total-equality-deletes",
)
_NO_FILES = pa.RecordBatch.from_pylist([], _KEPT)
_NONE = np.iinfo(np.int64).max
_MIX = np.uint64(0x9E3779B97F4A7C15)


class _Some:
    """The first files of those that something is wrong with."""

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._count = 0

    def add(self, files: pa.RecordBatch) -> None:
        """Add files, as long as there are few."""
        if files.num_rows and self._count < MOST_DESCRIBED:
            self._parts.append(files.slice(0, MOST_DESCRIBED - self._count))
            self._count += self._parts[-1].num_rows

    @property
    def files(self) -> pa.Table:
        return pa.Table.from_batches(self._parts) if self._parts else NONE


class _Lowest:
    """The lowest number in each of some scopes."""

    def __init__(self, wanted: npt.NDArray[Any]) -> None:
        self._known = np.unique(wanted)
        self._lowest = np.full(len(self._known), _NONE, np.int64)

    def add(self, scopes: npt.NDArray[Any], numbers: Int64s) -> None:
        """Add the numbers of what is in scopes, wanted ones and others."""
        if len(self._known):
            at = np.minimum(np.searchsorted(self._known, scopes), len(self._known) - 1)
            is_known = self._known[at] == scopes
            np.minimum.at(self._lowest, at[is_known], numbers[is_known])

    def of(self, wanted: npt.NDArray[Any]) -> Int64s:
        """Return for each of some wanted scopes the lowest number in it; the greatest int64 for one that has none."""
        return self._lowest[np.searchsorted(self._known, wanted)]


class _WideScopes:
    """The sequence numbers of data files, for delete files of partitions and of the whole table.

    First `want` takes all delete files, then `add` all data files.
    """

    def __init__(self) -> None:
        self.is_empty = True
        # The scopes, those with a sequence number, and the sequence numbers that are looked for.
        self._wanted: list[npt.NDArray[Any]] = [
            np.zeros(0, kind) for kind in (np.uint64, np.uint64, np.int64)
        ]
        self._all = _NONE

    def want(self, deletes: pa.RecordBatch) -> None:
        self.is_empty &= not deletes.num_rows
        kind, scope, sequence = self._columns(deletes)
        late = self._has_other_number(deletes)
        more = (
            scope[_is_of_partition(kind)],
            _pairs_of(scope, sequence)[late & (kind == _KEYS)],
            sequence[late & (kind == _GLOBAL_KEYS)],
        )
        self._wanted = [
            np.union1d(known, new) for known, new in zip(self._wanted, more, strict=True)
        ]

    @cached_property
    def _found(self) -> list[_Lowest]:
        return [_Lowest(wanted) for wanted in self._wanted]

    def add(self, data: pa.RecordBatch) -> None:
        _, scope, sequence = self._columns(data)
        self._all = min(self._all, int(sequence.min(initial=_NONE)))
        every = (scope, _pairs_of(scope, sequence), sequence)
        for found, scopes in zip(self._found, every, strict=True):
            found.add(scopes, sequence)

    def oldest(self, deletes: pa.RecordBatch) -> Int64s:
        """Return the lowest number in the scope of each delete file; any number for one that names a data file."""
        kind, scope, _ = self._columns(deletes)
        oldest = np.full(len(kind), self._all, np.int64)
        chosen = _is_of_partition(kind)
        oldest[chosen] = self._found[0].of(scope[chosen])
        return oldest

    def renumbered(self, deletes: pa.RecordBatch) -> Mask:
        """Return which files have a number that they did not get when added, and that data in their scope has."""
        kind, scope, sequence = self._columns(deletes)
        found = self._has_other_number(deletes)
        for number, of_kind, scopes in (
            (1, _KEYS, _pairs_of(scope, sequence)),
            (2, _GLOBAL_KEYS, sequence),
        ):
            chosen = found & (kind == of_kind)
            found[chosen] = self._found[number].of(scopes[chosen]) != _NONE
        return found

    @staticmethod
    def _columns(files: pa.RecordBatch) -> tuple[npt.NDArray[Any], Hashes, Int64s]:
        kind, scope, sequence = (_numbers(files, name) for name in ("kind", "scope", "sequence"))
        return kind, scope.astype(np.uint64, copy=False), sequence

    @staticmethod
    def _has_other_number(deletes: pa.RecordBatch) -> Mask:
        by_key: Mask = _numbers(deletes, "kind") >= _KEYS
        by_key &= _numbers(deletes, "added") != _numbers(deletes, "sequence")
        return by_key


def _is_of_partition(kind: npt.NDArray[Any]) -> Mask:
    found: Mask = (kind == _OF_PARTITION) | (kind == _KEYS)
    return found


def _pairs_of(scope: Hashes, sequence: Int64s) -> Hashes:
    """Return a hash for each scope with a sequence number."""
    return scope * _MIX + sequence.astype(np.uint64)


def _unusual_numbers(metadata: TableMetadata) -> list[int]:
    """Return the sequence numbers of snapshots whose equality deletes are not those of an upsert.

    An upsert adds rows together with deletes of their older versions, also if there are none.
    """
    found = []
    for snapshot in metadata.snapshots:
        summary = properties_of(snapshot)
        if not {JOB_ID, OPERATION_ID}.intersection(summary):
            found.append(added_at(snapshot))
    return found


def _numbers(files: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column as numbers: 0 where it is NULL, and if the files do not have it."""
    if name not in files.schema.names:
        return np.zeros(files.num_rows, np.int64)
    return np.asarray(one_array(files[name]).fill_null(0).to_numpy())


def _repeated(values: Hashes) -> Hashes:
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def paths_of(
    storage: Storage, manifests: pa.Table, metadata: TableMetadata, hashes: Hashes
) -> list[str]:
    """Return the locations of live files with some hashes as they are written, one for each entry, sorted."""
    by_spec = read_manifests(
        storage, manifests, metadata, columns=("status", "file_path", "content"), live_only=True
    )
    wanted = pa.array(hashes, pa.uint64())
    found = []
    for entries in by_spec.values():
        chosen = pc.is_in(pa.array(path_hashes(entries)), value_set=wanted)
        found += entries["file_path"].filter(chosen).to_pylist()
    return sorted(found)


def is_live(entries: pa.Table) -> pa.Table:
    """Return the entries of files that are not deleted."""
    return entries.filter(pc.not_equal(entries["status"], DELETED))
