"""What the files of one snapshot contradict together: duplicates, totals, deletes without data, row ids.

Paths and partitions are kept as hashes: the names of millions of files would not fit into memory. Hashes that are
equal by chance may hide a finding, and never cause one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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

# Kinds of files. A position delete file is of one data file or of a partition, an equality delete file of a partition
# or of the whole table.
_DATA, _VECTOR, _OF_FILE, _OF_PARTITION, _KEYS, _GLOBAL_KEYS = range(6)
LIVE = pa.schema(
    [
        ("path", pa.uint64()),
        # The position of the manifest among all, and of the entry in it.
        ("manifest", pa.int32()),
        ("kind", pa.int8()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("sequence", pa.int64()),
        # The sequence number at which the file was added.
        ("added", pa.int64()),
        # The hash of the data file or partition to which a delete file applies; of data files, of their partition.
        ("scope", pa.uint64()),
        ("first_row_id", pa.int64()),
    ]
)


def live_files(
    entries: pa.Table, manifests: Int64s, metadata: TableMetadata, spec_id: int, *, scopes: bool
) -> pa.Table:
    """Return what is kept of live entries.

    Args:
        entries: the entries, of one spec.
        manifests: for each, the position of its manifest.
        metadata: the table's metadata.
        spec_id: their spec.
        scopes: whether partitions are compared, because the table has delete files.
    """
    content = one_array(entries["content"]).to_numpy()
    kind = np.full(len(content), _DATA, np.int8)
    scope = np.zeros(len(content), np.uint64)
    if scopes:
        scope = _partition_hashes(one_array(entries["partition"]), spec_id)
    if (content != DATA).any():
        kind, scope = _deletes(
            entries, content, scope, everywhere=is_global(metadata.specs()[spec_id])
        )
    columns = [
        pa.array(path_hashes(entries)),
        pa.array(manifests, pa.int32()),
        pa.array(kind),
        one_array(entries["record_count"]),
        one_array(entries["file_size_in_bytes"]),
        one_array(entries["sequence_number"]),
        one_array(entries["file_sequence_number"]),
        pa.array(scope),
        one_array(entries["first_row_id"]),
    ]
    return pa.table(columns, schema=LIVE)


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
    kind[is_vector & (content != DATA)] = _VECTOR
    kind[by_key] = _GLOBAL_KEYS if everywhere else _KEYS
    kind[content == DATA] = _DATA
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
    """The live files of one snapshot."""

    def __init__(self, held: pa.Table) -> None:
        """Take rows of `LIVE`."""
        columns = {name: one_array(held[name]) for name in LIVE.names}
        self._columns = columns
        self.manifest: Int64s = columns["manifest"].to_numpy()
        self.path: Hashes = columns["path"].to_numpy()
        self.kind: Int64s = columns["kind"].to_numpy()
        self.sequence: Int64s = columns["sequence"].fill_null(0).to_numpy()
        self.added: Int64s = columns["added"].fill_null(0).to_numpy()
        self.scope: Hashes = columns["scope"].to_numpy()
        self.records: Int64s = columns["records"].to_numpy()
        self.is_data: Mask = self.kind == _DATA

    def duplicates(self) -> Hashes:
        """Return the hashes of data files that occur twice."""
        return _repeated(self.path[self.is_data])

    def totals(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Compare the totals in a snapshot's summary."""
        summary = properties_of(snapshot)
        by_position = np.isin(self.kind, (_VECTOR, _OF_FILE, _OF_PARTITION))
        by_key = np.isin(self.kind, (_KEYS, _GLOBAL_KEYS))
        actual = {
            "total-data-files": self.is_data.sum(),
            "total-delete-files": (~self.is_data).sum(),
            "total-records": self.records[self.is_data].sum(),
            "total-position-deletes": self.records[by_position].sum(),
            "total-equality-deletes": self.records[by_key].sum(),
        }
        for key, number in actual.items():
            text = summary.get(key)
            if text is not None and text != str(int(number)):
                message = f"{key} is {text[:40]}, the manifests contain {number}"
                yield Finding("T001", f"snapshot {snapshot.snapshot_id}", message)

    def overlaps(self) -> Int64s:
        """Return the positions of data files with row ids that other data files have too."""
        first = self._columns["first_row_id"]
        some = np.flatnonzero(
            self.is_data & first.is_valid().to_numpy(zero_copy_only=False) & (self.records > 0)
        )
        starts = first.take(pa.array(some)).to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.lexsort((self.path[some], starts))
        starts, ends = starts[order], starts[order] + self.records[some][order]
        highest = np.maximum.accumulate(ends) if len(ends) else ends
        found = np.flatnonzero(starts[1:] < highest[:-1]) + 1
        same = self.path[some][order]
        doubled: Int64s = some[order][found[same[found] != same[found - 1]]]
        return doubled

    def last_row_id(self) -> int:
        """Return the number after the highest row id."""
        first = self._columns["first_row_id"].fill_null(-1).to_numpy()
        ends = np.where(self.is_data & (first >= 0), first + self.records, 0)
        return int(ends.max()) if len(ends) else 0

    def deletes(self, metadata: TableMetadata) -> dict[str, Int64s]:
        """Return the positions of delete files by the code of what is wrong with them."""
        data = _Scopes(self.scope[self.is_data], self.sequence[self.is_data])
        files = _Scopes(self.path[self.is_data], self.sequence[self.is_data])
        everything = int(self.sequence[self.is_data].min()) if self.is_data.any() else _NONE
        oldest = np.full(len(self.kind), _NONE, np.int64)
        by_file = np.isin(self.kind, (_VECTOR, _OF_FILE))
        by_partition = np.isin(self.kind, (_OF_PARTITION, _KEYS))
        oldest[by_file] = files.oldest(self.scope[by_file])
        oldest[by_partition] = data.oldest(self.scope[by_partition])
        oldest[self.kind == _GLOBAL_KEYS] = everything
        vector = self.kind == _VECTOR
        by_key = np.isin(self.kind, (_KEYS, _GLOBAL_KEYS))
        position = np.isin(self.kind, (_OF_FILE, _OF_PARTITION))
        with_vector = np.isin(self.scope, self.scope[vector]) & (self.kind == _OF_FILE)
        unusual = np.isin(self.sequence, _unusual_numbers(metadata))
        with_own = (oldest == self.sequence) & unusual
        found = {
            "V003": vector & np.isin(self.scope, _repeated(self.scope[vector])),
            "V004": with_vector,
            "V005": vector & (oldest == _NONE),
            "V006": vector & (oldest != _NONE) & (oldest > self.sequence),
            "E006": by_key & (with_own | self._renumbered()),
            "E005": (position & (oldest > self.sequence)) | (by_key & (oldest > self.sequence)),
        }
        return {code: np.flatnonzero(mask) for code, mask in found.items()}

    def _renumbered(self) -> Mask:
        """Return which files have a number that they did not get when added, and that data in their scope has."""
        pairs = self.scope * _MIX + self.sequence.astype(np.uint64)
        everywhere = np.isin(self.sequence, self.sequence[self.is_data])
        same = np.isin(pairs, pairs[self.is_data])
        found = np.where(self.kind == _GLOBAL_KEYS, everywhere, same)
        renumbered: Mask = found & (self.added != self.sequence)
        return renumbered


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


class _Scopes:
    """The lowest sequence number in each scope."""

    def __init__(self, scopes: Hashes, numbers: Int64s) -> None:
        order = np.argsort(scopes, kind="stable")
        self._scopes, first = np.unique(scopes[order], return_index=True)
        self._lowest = np.minimum.reduceat(numbers[order], first) if len(first) else numbers

    def oldest(self, scopes: Hashes) -> Int64s:
        """Return the lowest number of each scope; the greatest int64 for one that has none."""
        if not len(self._scopes):
            return np.full(len(scopes), _NONE, np.int64)
        at = np.minimum(np.searchsorted(self._scopes, scopes), len(self._scopes) - 1)
        return np.where(self._scopes[at] == scopes, self._lowest[at], _NONE)


def _repeated(values: Hashes) -> Hashes:
    found, counts = np.unique(values, return_counts=True)
    return found[counts > 1]


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
