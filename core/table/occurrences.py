"""Which files ever occurred in the retained snapshots of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core import paths
from lake.core.arrays import one_array
from lake.core.errors import CorruptFileError
from lake.core.table.avro import Block, Container, read_container
from lake.core.table.manifest_decode import decode_manifest_rows
from lake.core.table.manifest_read import runs
from lake.core.table.manifest_schemas import MANIFEST_SCHEMA
from lake.core.table.manifests import read_manifests
from lake.core.table.spelling import same_name
from lake.core.table.whole_lists import check_list, count_lists, shortfall

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.storage import Storage

_FETCH_THREADS = 16
# What is held in memory at a time: manifest lists, and bytes of these or of manifests.
_LISTS = 256
_WINDOW_BYTES = 64 * 1024 * 1024
_NONE = pa.array([], pa.string())


def occurring(
    storage: Storage,
    metadata: TableMetadata,
    wanted: Collection[str],
    *,
    known: TableMetadata | None = None,
) -> frozenset[str]:
    """Return which files occur in a retained snapshot, of whatever branch, live or deleted; in canonical form.

    Args:
        storage: where the snapshots' manifests lie.
        metadata: the table's.
        wanted: locations of files, in any spelling.
        known: metadata of an earlier call: only what came since is looked at.

    Raises:
        CorruptFileError: a manifest or a manifest list is damaged.
        NotFoundError: one is missing.
    """
    if not wanted:
        return frozenset()
    names = pa.array(sorted(wanted), pa.string())
    folded = same_name(names)
    manifests = _manifests(storage, metadata, known)
    seen = np.zeros(len(names), bool)
    for window in _windows(manifests):
        by_spec = read_manifests(storage, window, metadata, columns=("file_path",))
        for entries in by_spec.values():
            hits = pc.is_in(folded, value_set=same_name(entries["file_path"]))
            seen |= hits.to_numpy(zero_copy_only=False)
    return frozenset(map(paths.canonical, names.filter(pa.array(seen)).to_pylist()))


def metadata_files(
    storage: Storage, metadata: TableMetadata, *, known: TableMetadata | None = None
) -> frozenset[str]:
    """Return the manifests and manifest lists that retained snapshots are made of; in canonical form.

    Args:
        storage: where the snapshots' manifests lie.
        metadata: the table's.
        known: metadata of an earlier call: only what came since is looked at.

    Raises:
        CorruptFileError: a manifest list is damaged.
        NotFoundError: one is missing.
    """
    lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
    manifests = _manifests(storage, metadata, known)["manifest_path"].to_pylist()
    return frozenset(map(paths.canonical, [*lists, *manifests]))


def _manifests(storage: Storage, metadata: TableMetadata, known: TableMetadata | None) -> pa.Table:
    """Return the manifests (`MANIFEST_COLUMNS`) of retained snapshots, each once."""
    earlier = {item.snapshot_id for item in known.snapshots} if known else set()
    new = [item for item in metadata.snapshots if item.snapshot_id not in earlier]
    # What a new snapshot took over from one that was known need not be read again.
    parents = {item.parent_snapshot_id for item in new} & earlier
    taken_over = [item for item in metadata.snapshots if item.snapshot_id in parents]
    old = _distinct(_lists(storage, metadata, taken_over), _NONE)
    return _distinct(_lists(storage, metadata, new), one_array(old["manifest_path"]))


def _distinct(lists: Iterable[pa.Table], seen: pa.Array) -> pa.Table:
    """Return the manifests of lists whose paths were not seen yet, each once."""
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
    """Yield the rows of manifest lists; those of one layout are decoded together, they are many and alike."""
    with ThreadPoolExecutor(_FETCH_THREADS) as pool:
        for start in range(0, len(snapshots), _LISTS):
            some = snapshots[start : start + _LISTS]
            by_schema: dict[bytes, list[_List]] = {}
            for one in pool.map(lambda item: _list(storage, item), some):
                by_schema.setdefault(one.container.schema_json, []).append(one)
            for schema, group in by_schema.items():
                for part in runs(group, lambda item: item.container.size, _WINDOW_BYTES):
                    rows = _rows_of_lists(schema, part)
                    _check(storage, metadata, part, rows)
                    yield rows


@dataclass(frozen=True, slots=True)
class _List:
    snapshot: Snapshot
    container: Container


def _list(storage: Storage, snapshot: Snapshot) -> _List:
    location = snapshot.manifest_list
    return _List(snapshot, read_container(storage.read(location), name=location))


def _rows_of_lists(schema_json: bytes, group: Sequence[_List]) -> pa.Table:
    containers = [item.container for item in group]
    blocks: list[Block] = [block for container in containers for block in container.blocks]
    try:
        return decode_manifest_rows(schema_json, blocks, name=containers[0].name)
    except CorruptFileError:
        # Read alone, the damaged one is named.
        for container in containers:
            decode_manifest_rows(schema_json, container.blocks, name=container.name)
        raise


def _check(
    storage: Storage, metadata: TableMetadata, group: Sequence[_List], rows: pa.Table
) -> None:
    """Check that no list lacks rows: what it names would be taken for never committed."""
    sizes = [item.container.objects for item in group]
    starts = np.cumsum([0, *sizes]).tolist()
    for item, start, counts in zip(group, starts, count_lists(rows, sizes), strict=False):
        if shortfall(metadata, item.snapshot, counts):
            check_list(storage, metadata, item.snapshot, rows.slice(start, counts.manifests))


def _windows(manifests: pa.Table) -> Iterator[pa.Table]:
    """Cut manifests into runs of about `_WINDOW_BYTES`."""
    lengths = manifests["manifest_length"].to_pylist()
    for run in runs(range(len(lengths)), lambda row: lengths[row], _WINDOW_BYTES):
        yield manifests.slice(run[0], len(run))
