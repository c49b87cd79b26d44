"""Check a snapshot's files against what its summary and its parents state, before a branch receives its change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.data_files import DATA
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import read_list
from lake.core.transaction.commit.conflicts import in_partitions, partitions_of
from lake.core.transaction.commit.operations import EntryTable

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

_SHOWN = 3


def require_counted_files(source: Snapshot, own: pa.Table, found: int) -> None:
    """Check that the manifests of a snapshot contain the data files that its list counts as added.

    Args:
        source: the snapshot.
        own: the rows of its list for the data manifests that it added.
        found: the number of entries in them that it added.

    Raises:
        CorruptFileError: they contain fewer: the others name another snapshot, and would be left out.
    """
    counted = pc.sum(own["added_files_count"], min_count=0).as_py()
    if found < counted:
        raise CorruptFileError(
            f"the manifests of snapshot {source.snapshot_id} contain {found} files that it added, "
            f"{source.manifest_list} counts {counted}"
        )


def require_stored(table: Table, source: Snapshot, added: Sequence[EntryTable]) -> None:
    """Check that the data files that a snapshot added exist, with their sizes.

    The snapshot is on no branch, so its files may be gone without an effect on the branch, which a new snapshot with
    these files would make unreadable.

    Raises:
        CorruptFileError: a file is missing, or has another size.
    """
    sizes = {
        path: size
        for part in added
        for path, size in zip(
            part.entries["file_path"].to_pylist(),
            part.entries["file_size_in_bytes"].to_pylist(),
            strict=True,
        )
    }
    stored = table.storage.look_up(sizes)
    wrong = sorted(
        path
        for path, size in sizes.items()
        if (file := stored[path]) is None or file.length != size
    )
    if wrong:
        raise CorruptFileError(
            f"{len(wrong)} of {len(sizes)} files that snapshot {source.snapshot_id} added do not exist, or have "
            f"another size: {', '.join(wrong[:_SHOWN])}"
        )


def require_replaced_all(
    table: Table, source: Snapshot, added: Sequence[EntryTable], removed: frozenset[str]
) -> None:
    """Check that a snapshot that replaced partitions removed all files of its parent in them.

    If it left some there, its summary is wrong, and a replacement of the same partitions would remove them.

    Raises:
        RefusedError: it left some.
        CorruptFileError: the parent's files cannot be determined.
    """
    parent = ancestry.snapshots_by_id(table.metadata).get(source.parent_snapshot_id or 0)
    if parent is None:
        return
    manifests = read_list(table.storage, table.metadata, parent)
    data = manifests.filter(pc.equal(manifests["content"], DATA))
    specs = table.metadata.specs()
    # Without partitions, the whole table was replaced.
    is_whole = any(specs[part.spec_id].is_unpartitioned() for part in added)
    partitions = frozenset(item for part in added for item in partitions_of(part.entries))
    left: list[str] = []
    live = read_manifests(
        table.storage, data, table.metadata, columns=["file_path", "partition"], live_only=True
    )
    for entries in live.values():
        paths = entries["file_path"].to_pylist()
        inside = [True] * len(paths) if is_whole else in_partitions(entries, partitions)
        left += [
            path
            for path, is_inside in zip(paths, inside, strict=True)
            if is_inside and path not in removed
        ]
    if left:
        raise RefusedError(
            f"snapshot {source.snapshot_id} replaced partitions by its summary, but kept {len(left)} files in them, "
            f"e.g. {min(left)}",
            hint="repeat the command that made it",
        )
