"""What the retained snapshots of a table tell: which files ever occurred, and how far back they reach."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.errors import CorruptFileError
from lake.core.table import lineage
from lake.core.table.avro import Block, Container, read_container
from lake.core.table.manifest_decode import decode_manifest_rows
from lake.core.table.manifest_schemas import MANIFEST_SCHEMA
from lake.core.table.manifests import read_manifests
from lake.core.table.spelling import same_name

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.storage import Storage

_FETCH_THREADS = 16
# Manifests whose paths are held in memory at a time.
_WINDOW_BYTES = 64 * 1024 * 1024


def occurring(
    storage: Storage,
    metadata: TableMetadata,
    wanted: Collection[str],
    *,
    known: TableMetadata | None = None,
) -> frozenset[str]:
    """Return which files occur in a retained snapshot, of whatever branch, live or deleted.

    Args:
        storage: where the snapshots' manifests lie.
        metadata: the table's.
        wanted: locations of files, in any spelling; they are returned as given.
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
    return frozenset(names.filter(pa.array(seen)).to_pylist())


def retained_since(metadata: TableMetadata, branch: str) -> int | None:
    """Return the moment (ms since 1970) from which on all of a branch's snapshots are retained; None for ever.

    Raises:
        NotFoundError: there is no such branch.
    """
    head = lineage.branch_head(metadata, branch)
    if head is None:
        return None
    *_, oldest = lineage.ancestors(metadata, head.snapshot_id)
    return None if _is_first(metadata, oldest) else oldest.timestamp_ms


def _is_first(metadata: TableMetadata, snapshot: Snapshot) -> bool:
    """Whether a table had no snapshot before one.

    That it has no parent is not enough: PyIceberg's expiry takes the parent from the oldest that it keeps. Whatever
    else tells of earlier snapshots counts as well.
    """
    if snapshot.parent_snapshot_id is not None:
        return False
    number = snapshot.sequence_number or 0
    earlier = sum((item.sequence_number or 0) < number for item in metadata.snapshots)
    if earlier < number - 1:
        return False
    retained = lineage.snapshots_by_id(metadata)
    if any(entry.snapshot_id not in retained for entry in metadata.snapshot_log):
        return False
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    took_over = any(
        summary.get(f"total-{kind}", added) != added
        for kind in ("data-files", "delete-files")
        for added in (summary.get(f"added-{kind}", "0"),)
    )
    return not took_over and not any(
        f"deleted-{kind}" in summary for kind in ("data-files", "records")
    )


def _manifests(storage: Storage, metadata: TableMetadata, known: TableMetadata | None) -> pa.Table:
    """Return the manifests (`MANIFEST_COLUMNS`) of retained snapshots, each once."""
    earlier = {item.snapshot_id for item in known.snapshots} if known else set()
    new = [item for item in metadata.snapshots if item.snapshot_id not in earlier]
    manifests = _distinct(_lists(storage, new))
    if known is None or manifests.num_rows == 0:
        return manifests
    # What a new snapshot took over from one that was known need not be read again.
    parents = {item.parent_snapshot_id for item in new} & earlier
    taken_over = [item for item in metadata.snapshots if item.snapshot_id in parents]
    old = _lists(storage, taken_over)["manifest_path"]
    return manifests.filter(
        pc.invert(pc.is_in(manifests["manifest_path"], value_set=old.combine_chunks()))
    )


def _lists(storage: Storage, snapshots: Sequence[Snapshot]) -> pa.Table:
    """Return the rows of manifest lists; lists of one layout are decoded together, they are many."""
    by_schema: dict[bytes, list[Container]] = {}
    with ThreadPoolExecutor(_FETCH_THREADS) as pool:
        for container in pool.map(lambda item: _container(storage, item), snapshots):
            by_schema.setdefault(container.schema_json, []).append(container)
    tables = [
        table for schema, group in by_schema.items() for table in _rows_of_lists(schema, group)
    ]
    return pa.concat_tables([MANIFEST_SCHEMA.empty_table(), *tables])


def _container(storage: Storage, snapshot: Snapshot) -> Container:
    location = snapshot.manifest_list
    return read_container(storage.read(location), name=location)


def _rows_of_lists(schema_json: bytes, group: Sequence[Container]) -> Iterator[pa.Table]:
    blocks: list[Block] = [block for container in group for block in container.blocks]
    try:
        yield decode_manifest_rows(schema_json, blocks, name=group[0].name)
    except CorruptFileError:
        # Read alone, the damaged one is named.
        for container in group:
            yield decode_manifest_rows(schema_json, container.blocks, name=container.name)


def _distinct(manifests: pa.Table) -> pa.Table:
    rows = pa.array(range(manifests.num_rows), pa.int64())
    table = pa.table({"path": manifests["manifest_path"], "row": rows})
    first = table.group_by("path", use_threads=False).aggregate([("row", "min")])
    return manifests.take(first["row_min"])


def _windows(manifests: pa.Table) -> Iterable[pa.Table]:
    """Cut manifests into runs of about `_WINDOW_BYTES`."""
    total = start = 0
    for row, length in enumerate(manifests["manifest_length"].to_pylist()):
        total += length
        if total > _WINDOW_BYTES:
            yield manifests.slice(start, row + 1 - start)
            start, total = row + 1, 0
    if start < manifests.num_rows:
        yield manifests.slice(start)
