"""The files that are referenced by any retained snapshot of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.arrow import one_array
from lake.core.io.avro.container import runs
from lake.core.io.storage.file_names import FileNames, unnamed
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots.completeness import read_complete_additions

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage

# The size of the manifests that are in memory at a time.
_WINDOW_BYTES = 64 * 1024 * 1024
_NONE = pa.nulls(0, pa.string())


def find_referenced(
    storage: Storage,
    metadata: TableMetadata,
    wanted: Collection[str],
    *,
    known: TableMetadata | None = None,
) -> frozenset[str]:
    """Return which files occur in a retained snapshot of any branch, live or deleted, in canonical form.

    Args:
        storage: the storage that contains the manifests.
        metadata: the table's metadata.
        wanted: locations of files, in any spelling.
        known: the metadata of an earlier call: only newer snapshots are read.

    Raises:
        CorruptFileError: a manifest or a manifest list is damaged.
        NotFoundError: a manifest or a manifest list is missing.
    """
    if not wanted:
        return frozenset()
    names = pa.array(sorted(wanted), pa.string())
    files = FileNames()
    folded = files.of(names)
    manifests = _manifests(storage, metadata, known)
    seen = np.zeros(len(names), bool)
    for window in _windows(manifests):
        by_spec = read_manifests(storage, window, metadata, columns=("file_path",))
        for entries in by_spec.values():
            live = files.of(entries["file_path"])
            held = pa.concat_arrays([live, files.linked(live)])
            hits = pc.is_in(folded, value_set=held)
            seen |= hits.to_numpy(zero_copy_only=False)
    return frozenset(map(locations.canonical, names.filter(pa.array(seen)).to_pylist()))


def find_metadata_files(
    storage: Storage,
    metadata: TableMetadata,
    wanted: Sequence[str],
    *,
    known: TableMetadata | None = None,
) -> frozenset[str]:
    """Return which files are manifests or manifest lists of retained snapshots, as they were given.

    The arguments are those of `find_referenced`.

    Raises:
        CorruptFileError: a manifest list is damaged.
        NotFoundError: a manifest list is missing.
    """
    if not wanted:
        return frozenset()
    lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
    manifests = _manifests(storage, metadata, known)["manifest_path"].to_pylist()
    return frozenset(wanted).difference(unnamed(wanted, [*lists, *manifests]))


def _manifests(storage: Storage, metadata: TableMetadata, known: TableMetadata | None) -> pa.Table:
    """Return the distinct manifests (`MANIFEST_COLUMNS`) of retained snapshots."""
    earlier = {item.snapshot_id for item in known.snapshots} if known else set()
    new = [item for item in metadata.snapshots if item.snapshot_id not in earlier]
    # Manifests that a new snapshot inherited from a known one need not be read again.
    parents = {item.parent_snapshot_id for item in new} & earlier
    taken_over = [item for item in metadata.snapshots if item.snapshot_id in parents]
    old = _distinct(_lists(storage, metadata, taken_over), _NONE)
    return _distinct(_lists(storage, metadata, new), one_array(old["manifest_path"]))


def _distinct(lists: Iterable[pa.Table], seen: pa.Array) -> pa.Table:
    """Return the distinct manifests of lists whose paths have not been seen."""
    found = [MANIFEST_SCHEMA.empty_table()]
    for rows in lists:
        paths_of = rows["manifest_path"]
        numbers = pa.array(range(rows.num_rows), pa.int64())
        first = pa.table({"path": paths_of, "row": numbers}).group_by("path", use_threads=False)
        once = rows.take(first.aggregate([("row", "min")])["row_min"])
        new = once.filter(pc.invert(pc.is_in(once["manifest_path"], value_set=seen)))
        seen = pa.concat_arrays([seen, one_array(new["manifest_path"])])
        found.append(new)
    return pa.concat_tables(found)


def _lists(
    storage: Storage, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> Iterator[pa.Table]:
    """Yield what manifest lists add, all complete: a file missing from one would look uncommitted."""
    for found in read_complete_additions(storage, metadata, snapshots):
        yield found.rows


def _windows(manifests: pa.Table) -> Iterator[pa.Table]:
    """Split manifests into runs of about `_WINDOW_BYTES`."""
    lengths = manifests["manifest_length"].to_pylist()
    for run in runs(range(len(lengths)), lambda row: lengths[row], _WINDOW_BYTES):
        yield manifests.slice(run[0], len(run))
