"""Check that a snapshot contains what a branch's head contains, before the branch moves forward to it.

The program that committed the snapshot chose its parent id. If the id is wrong, the branch would lose the rows of its
head. Sequence numbers show some wrong ids; format version 1 does not have them.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import CorruptFileError
from lake.core.table.manifests.api import live_manifests, read_manifests
from lake.core.table.manifests.schemas import DELETED
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import names_of_files, read_list, without_manifests

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

_COLUMNS = ("status", "file_path", "content_offset")


def require_contents(table: Table, head: Snapshot, target: Snapshot) -> None:
    """Check that each live file of a branch's head is live in a descendant, or was removed between them.

    Two manifest lists are read, and manifests only if the descendant does not have all of the head's.

    Raises:
        CorruptFileError: a file is neither live nor removed, or a manifest or list cannot be read.
        NotFoundError: a manifest or list is missing.
    """
    storage, metadata = table.storage, table.metadata
    before = live_manifests(read_list(storage, metadata, head))
    after = read_list(storage, metadata, target)
    gone = without_manifests(before, after)
    if not gone.num_rows:
        return
    expected = _files(table, gone, live_only=True)
    lost = _without(expected, _files(table, without_manifests(after, before), live_only=True))
    between = takewhile(
        lambda item: item.snapshot_id != head.snapshot_id,
        ancestry.ancestors(metadata, target.snapshot_id),
    )
    for snapshot in between:
        if not len(lost):
            return
        listed = after if snapshot is target else read_list(storage, metadata, snapshot)
        own = listed.filter(pc.equal(listed["added_snapshot_id"], snapshot.snapshot_id))
        lost = _without(lost, _files(table, own, live_only=False))
    if len(lost):
        raise CorruptFileError(
            f"snapshot {target.snapshot_id} has snapshot {head.snapshot_id} as its parent or ancestor, but lacks "
            f"{len(lost)} of its files, e.g. {lost[0].as_py().split(' ')[0]}, and no snapshot between them removed "
            "them: the parent is wrong",
        )


def _files(table: Table, manifests: pa.Table, *, live_only: bool) -> pa.Array:
    """Return the names of the files in manifests: the live ones, or the removed ones."""
    found = read_manifests(
        table.storage, manifests, table.metadata, columns=_COLUMNS, live_only=live_only
    )
    if not live_only:
        found = {
            spec_id: entries.filter(pc.equal(entries["status"], DELETED))
            for spec_id, entries in found.items()
        }
    return names_of_files(found)


def _without(names: pa.Array, others: pa.Array) -> pa.Array:
    return names.filter(pc.invert(pc.is_in(names, value_set=others)))
