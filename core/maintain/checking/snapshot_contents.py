"""What the files of one snapshot contradict together: duplicates, totals, deletes without data, row ids.

Paths and partitions are kept as hashes: the names of millions of files would not fit into memory. Hashes that are
equal by chance may hide a finding, and never cause one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.data.keys.encoding import hash_keys
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.maintain.checking.findings import Finding
from lake.core.table.flink.commits import JOB_ID
from lake.core.table.manifests.api import DELETED, read_manifests
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES
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


def live_files(
    entries: pa.Table, manifests: Int64s, metadata: TableMetadata, spec_id: int, *, scopes: bool
) -> pa.Table:
    """Return what is kept of live entries, all of data files or all of delete files.

    Args:
        entries: the entries, of one spec.
        manifests: for each, the position of its manifest.
        metadata: the table's metadata.
        spec_id: their spec.
        scopes: whether partitions are compared, because the table has delete files.

    Returns:
        the columns `path`, `manifest` and `records`. If partitions are compared, also the sequence number
        (`sequence`) and the hash of the partition, or of that to which a delete file applies (`scope`). Of delete
        files, also their `kind` and the sequence number at which they were added (`added`). Of data files, also
        `first_row_id`, if any has one.
    """
    found = pa.table(
        [pa.array(path_hashes(entries)), pa.array(manifests, pa.int32()), entries["record_count"]],
        schema=_KEPT,
    )
    if entries["first_row_id"].null_count < entries.num_rows:
        found = found.append_column("first_row_id", entries["first_row_id"])
    if not scopes:
        return found
    content = one_array(entries["content"]).to_numpy()
    scope = _partition_hashes(one_array(entries["partition"]), spec_id)
    if (content != DATA).any():
        everywhere = is_global(metadata.specs()[spec_id])
        kind, scope = _deletes(entries, content, scope, everywhere=everywhere)
        found = found.append_column("kind", pa.array(kind))
        found = found.append_column("added", entries["file_sequence_number"])
    found = found.append_column("sequence", entries["sequence_number"])
    return found.append_column("scope", pa.array(scope))


def joined(parts: list[pa.Table]) -> pa.Table:
    """Return all rows of tables, each column as one array; a column that a part lacks is NULL there.

    The list is emptied, so that the parts of a column are free before the next one is joined.
    """
    files = pa.concat_tables(parts or [NONE], promote_options="default")
    parts.clear()
    for index, name in enumerate(files.column_names):
        files = files.set_column(index, name, one_array(files[name]))
    return files


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


class Contents:
    """The live files of one snapshot, or of all.

    Args:
        data: its data files (`live_files`), each column as one array.
        deletes: its delete files.
    """

    def __init__(self, data: pa.Table, deletes: pa.Table) -> None:
        self.data = data
        self._deletes = deletes

    def of(self, manifests: Int64s) -> Contents:
        """Return the files of manifests with some positions."""
        wanted = pa.array(manifests, pa.int32())
        parts = []
        for files in (self.data, self._deletes):
            chosen = pc.is_in(files["manifest"], value_set=wanted)
            # A filter copies all columns.
            every = pc.all(chosen, min_count=0).as_py()
            parts.append(files if every else files.filter(chosen))
        return Contents(*parts)

    def have(self, paths: Hashes) -> Mask:
        """Return for each hash of a path whether one of the files has it."""
        own = [_numbers(files, "path") for files in (self.data, self._deletes)]
        return np.isin(paths, np.concatenate(own))

    def duplicates(self) -> Hashes:
        """Return the hashes of data files that occur twice."""
        return _repeated(_numbers(self.data, "path"))

    def totals(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Compare the totals in a snapshot's summary."""
        summary = properties_of(snapshot)
        kind, deleted = (_numbers(self._deletes, name) for name in ("kind", "records"))
        actual = {
            "total-data-files": self.data.num_rows,
            "total-delete-files": self._deletes.num_rows,
            "total-records": _numbers(self.data, "records").sum(),
            "total-position-deletes": deleted[kind <= _OF_PARTITION].sum(),
            "total-equality-deletes": deleted[kind >= _KEYS].sum(),
        }
        for key, number in actual.items():
            text = summary.get(key)
            if text is not None and text != str(int(number)):
                message = f"{key} is {text[:40]}, the manifests contain {number}"
                yield Finding("T001", f"snapshot {snapshot.snapshot_id}", message)

    def overlaps(self) -> pa.Table:
        """Return the data files with row ids that other data files have too."""
        if "first_row_id" not in self.data.column_names:
            return self.data.slice(0, 0)
        has_rows = pc.and_(
            self.data["first_row_id"].is_valid(), pc.greater(self.data["records"], 0)
        )
        files = self.data if pc.all(has_rows).as_py() else self.data.filter(has_rows)
        path, starts = _numbers(files, "path"), _numbers(files, "first_row_id")
        order = np.lexsort((path, starts))
        starts, ends = starts[order], _numbers(files, "records")[order]
        ends += starts
        np.maximum.accumulate(ends, out=ends)
        found = np.flatnonzero(starts[1:] < ends[:-1]) + 1
        at, before = order[found], order[found - 1]
        return files.take(pa.array(at[path[at] != path[before]]))

    def last_row_id(self) -> int:
        """Return the number after the highest row id."""
        if "first_row_id" not in self.data.column_names:
            return 0
        first = self.data["first_row_id"]
        ends = pc.if_else(pc.greater_equal(first, 0), pc.add(first, self.data["records"]), None)
        return max(pc.max(ends).as_py() or 0, 0)

    def deletes(self, metadata: TableMetadata) -> dict[str, pa.Table]:
        """Return the delete files by the code of what is wrong with them."""
        if not self._deletes.num_rows:
            return {}
        kind, scope = _numbers(self._deletes, "kind"), _numbers(self._deletes, "scope")
        sequence = _numbers(self._deletes, "sequence")
        numbers = _numbers(self.data, "sequence")
        oldest = np.full(len(kind), numbers.min(initial=_NONE), np.int64)
        by_file, by_partition = kind <= _OF_FILE, (kind == _OF_PARTITION) | (kind == _KEYS)
        for chosen, name in ((by_file, "path"), (by_partition, "scope")):
            oldest[chosen] = _lowest(scope[chosen], _numbers(self.data, name), numbers)
        vector, by_key = kind == _VECTOR, kind >= _KEYS
        unusual = np.isin(sequence, _unusual_numbers(metadata))
        with_own = (oldest == sequence) & unusual
        found = {
            "V003": vector & np.isin(scope, _repeated(scope[vector])),
            "V004": np.isin(scope, scope[vector]) & (kind == _OF_FILE),
            "V005": vector & (oldest == _NONE),
            "V006": vector & (oldest != _NONE) & (oldest > sequence),
            "E006": by_key & (with_own | self._renumbered()),
            "E005": ~vector & (oldest > sequence),
        }
        return {code: self._deletes.filter(pa.array(mask)) for code, mask in found.items()}

    def _renumbered(self) -> Mask:
        """Return which files have a number that they did not get when added, and that data in their scope has."""
        kind, sequence = _numbers(self._deletes, "kind"), _numbers(self._deletes, "sequence")
        found: Mask = (kind >= _KEYS) & (_numbers(self._deletes, "added") != sequence)
        if found.any():
            numbers = _numbers(self.data, "sequence")
            own, pairs = (
                _numbers(files, "scope") * _MIX + _numbers(files, "sequence").astype(np.uint64)
                for files in (self._deletes, self.data)
            )
            everywhere = _lowest(sequence, numbers, numbers) != _NONE
            same = _lowest(own, pairs, numbers) != _NONE
            found &= np.where(kind == _GLOBAL_KEYS, everywhere, same)
        return found


_NONE = np.iinfo(np.int64).max
_MIX = np.uint64(0x9E3779B97F4A7C15)


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


def _numbers(files: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column as numbers: 0 where it is NULL, and if the files do not have it."""
    if name not in files.column_names:
        return np.zeros(files.num_rows, np.int64)
    return np.asarray(one_array(files[name]).fill_null(0).to_numpy())


def _lowest(wanted: npt.NDArray[Any], scopes: npt.NDArray[Any], numbers: Int64s) -> Int64s:
    """Return for each wanted scope the lowest number in it; the greatest int64 for one that has none."""
    known, own = np.unique(wanted, return_inverse=True)
    lowest = np.full(len(known), _NONE, np.int64)
    if len(known):
        at = np.searchsorted(known, scopes)
        np.minimum(at, len(known) - 1, out=at)
        is_known = known[at] == scopes
        np.minimum.at(lowest, at[is_known], numbers[is_known])
    return lowest[own]


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
