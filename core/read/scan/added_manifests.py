"""Find the data manifests that append snapshots added, from as few manifest lists as possible.

A list also names the manifests that earlier snapshots added and no later one replaced. So the newest list is read
first. It is enough for each earlier snapshot whose manifests in it add as many files and rows as the snapshot's
summary counts. The lists of other snapshots are read, again from the newest: their manifests were merged, rewritten
or removed since, or their summaries do not count what they added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.table.manifests.api import read_list_additions
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots.completeness import (
    added_counts,
    check_list,
    has_all_added_files,
    missing_added_files_messages,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage

# One list at a time is read while each is enough for that many others; otherwise ever more together, to save time.
_ENOUGH = 8
_GROWTH = 4


def read_added_manifests(
    storage: Storage, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the data manifests that snapshots of one history added, and messages about missing ones.

    Returns:
        the distinct manifests (`MANIFEST_COLUMNS`) in the order of the snapshots, and the messages.

    Raises:
        CorruptFileError: a list is damaged.
        NotFoundError: a list does not exist.
    """
    places = {item.snapshot_id: place for place, item in enumerate(snapshots)}
    wanted = pa.array(list(places), pa.int64())
    added, doubts = MANIFEST_SCHEMA.empty_table(), set[str]()
    unread, at_once = sorted(snapshots, key=_age), 1
    while unread:
        read, earlier = unread[-at_once:], unread[:-at_once]
        listed, messages = _read_lists(storage, metadata, read)
        is_added = pc.is_in(listed["added_snapshot_id"], value_set=wanted)
        own = listed.filter(pc.and_(pc.equal(listed["content"], DATA), is_added))
        added = _distinct(pa.concat_tables([added, own]))
        doubts.update(messages)
        counts = added_counts(added)
        unread = [
            item
            for item in earlier
            if not has_all_added_files(metadata, item, counts.get(item.snapshot_id))
        ]
        spared = len(earlier) - len(unread)
        at_once = 1 if spared >= len(read) * _ENOUGH else at_once * _GROWTH
    numbers = added["added_snapshot_id"].to_pylist()
    order = sorted(range(added.num_rows), key=lambda row: places[numbers[row]])
    return added.take(pa.array(order, pa.int64())), tuple(sorted(doubts))


def _age(snapshot: Snapshot) -> tuple[int, int]:
    # Only which lists are read depends on it, not what is found.
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def _read_lists(
    storage: Storage, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> tuple[pa.Table, list[str]]:
    """Return what the lists of snapshots, oldest first, add to each other, and messages about missing files."""
    by_list: dict[str, list[Snapshot]] = {}
    for item in snapshots:
        by_list.setdefault(item.manifest_list, []).append(item)
    owners: list[Snapshot] = []
    parts = [MANIFEST_SCHEMA.empty_table()]
    for locations, inherited, added_rows, rows in read_list_additions(storage, list(by_list)):
        start = 0
        for location, shared, size in zip(locations, inherited, added_rows, strict=True):
            own = rows.slice(start, size)
            start += size
            for snapshot in by_list[location]:
                # The rows of the list before it are those of an earlier snapshot.
                if size or not shared:
                    check_list(metadata, snapshot, own)
                owners.append(snapshot)
                parts.append(own)
    listed = pa.concat_tables(parts)
    sizes = [part.num_rows for part in parts[1:]]
    return listed, missing_added_files_messages(metadata, owners, listed, sizes)


def _distinct(manifests: pa.Table) -> pa.Table:
    """Return the first row of each manifest."""
    names = normalize_locations(one_array(manifests["manifest_path"]))
    numbers = pa.array(range(manifests.num_rows), pa.int64())
    first = pa.table({"name": names, "row": numbers}).group_by("name", use_threads=False)
    return manifests.take(first.aggregate([("row", "min")])["row_min"])
