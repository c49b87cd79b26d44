"""When the partitions of a snapshot last changed, from the commit times of the snapshots that its entries name.

A manifest entry names the snapshot that added its file. Snapshots of the operation ``replace`` only rewrite rows, so
they do not show when a partition changed. An expired snapshot has no time, but it is older than each retained
snapshot with a higher sequence number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Int64s
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.snapshots.ancestry import operation_of
from lake.core.table.snapshots.delete_scopes import is_global

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.snapshots.live_files import LiveFiles

# The columns of data files that `activity_of` needs.
ACTIVITY_COLUMNS = ("status", "snapshot_id", "file_sequence_number", "partition")
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class PartitionActivity:
    """The distinct partitions of the data files of one spec.

    Args:
        codes: the partition of each data file, as an index into the other arrays.
        first: the first data file of each partition, as an index into the entries.
        changed_ms: the newest commit that is known to have changed each partition, in ms since 1970; -1 if none of
            its entries shows one, because each was rewritten or its snapshot has expired.
        changed_by_ms: a time after which nothing changed the partition. Rewrites count as changes here; an expired
            snapshot is not newer than the next retained one.
        delete_files: the delete files that name the partition; those without a partition are not counted.
    """

    codes: Int64s
    first: Int64s
    changed_ms: Int64s
    changed_by_ms: Int64s
    delete_files: Int64s


def activity_of(found: LiveFiles) -> dict[int, PartitionActivity]:
    """Return the partitions of live data files by spec id.

    Args:
        found: with the columns `ACTIVITY_COLUMNS`.

    Raises:
        CorruptFileError: a delete manifest does not match its list.
    """
    metadata = found.table.metadata
    deletes = found.delete_index.by_spec if found.delete_manifests.num_rows else {}
    times = _Times(metadata)
    specs = metadata.specs()
    everywhere = [
        entries.filter(pa.array(entries["content"].to_numpy() == EQUALITY_DELETES))
        for spec_id, entries in deletes.items()
        if spec_id not in specs or is_global(specs[spec_id])
    ]
    of_all = np.concatenate([np.zeros(0, np.int64), *(times.changed(item) for item in everywhere)])
    # An equality delete of an unpartitioned spec applies to the partitions of all specs.
    newest = int(of_all.max(initial=_UNKNOWN))
    return {
        spec_id: _activity(entries, deletes.get(spec_id), times, newest)
        for spec_id, entries in found.by_spec.items()
    }


def _activity(
    data: pa.Table, deletes: pa.Table | None, times: _Times, newest: int
) -> PartitionActivity:
    others = data.slice(0, 0) if deletes is None else deletes
    data_codes, delete_codes = partition_codes([data["partition"], others["partition"]])
    known, first, codes = np.unique(data_codes, return_index=True, return_inverse=True)
    changed = np.full(len(known), newest, np.int64)
    bound = np.full(len(known), newest, np.int64)
    counts = np.zeros(len(known), np.int64)
    np.maximum.at(changed, codes, times.changed(data))
    np.maximum.at(bound, codes, times.bound(data))
    # Deletes of a partition without data files have no effect.
    places = np.searchsorted(known, delete_codes)
    own = places < len(known)
    own[own] = known[places[own]] == delete_codes[own]
    rows = others.filter(pa.array(own))
    np.maximum.at(changed, places[own], times.changed(rows))
    np.maximum.at(bound, places[own], times.bound(rows))
    np.add.at(counts, places[own], 1)
    return PartitionActivity(codes, first, changed, bound, counts)


@dataclass(frozen=True, slots=True)
class PartitionCommits:
    """The commits that the entries of one spec name, by partition.

    Args:
        codes: the partition of each data file, a number below ``partitions``.
        partitions: the number of distinct partitions.
        pairs: the partition of each commit, sorted.
        times: the time of each commit in ms since 1970, sorted within the partition; each once.
    """

    codes: Int64s
    partitions: int
    pairs: Int64s
    times: Int64s


def commit_times(found: LiveFiles, times: Mapping[int, int]) -> dict[int, PartitionCommits]:
    """Return when some snapshots changed each partition, by spec id, as far as live entries show it.

    Args:
        found: with the columns `ACTIVITY_COLUMNS`.
        times: the time of each snapshot that counts.

    Raises:
        CorruptFileError: a delete manifest does not match its list.
    """
    deletes = found.delete_index.by_spec if found.delete_manifests.num_rows else {}
    return {
        spec_id: _commit_times(entries, deletes.get(spec_id), times)
        for spec_id, entries in found.by_spec.items()
    }


def _commit_times(
    data: pa.Table, deletes: pa.Table | None, times: Mapping[int, int]
) -> PartitionCommits:
    others = data.slice(0, 0) if deletes is None else deletes
    data_codes, delete_codes = partition_codes([data["partition"], others["partition"]])
    known, codes = np.unique(data_codes, return_inverse=True)
    places = np.searchsorted(known, delete_codes)
    own = places < len(known)
    own[own] = known[places[own]] == delete_codes[own]
    pairs = np.stack(
        [
            np.concatenate([codes, places[own]]),
            np.concatenate([_looked_up(data, times), _looked_up(others, times)[own]]),
        ]
    )
    unique = np.unique(pairs[:, pairs[1] != _UNKNOWN], axis=1)
    return PartitionCommits(codes, len(known), unique[0], unique[1])


class _Times:
    """The commit times of retained snapshots."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._all: dict[int, int] = {}
        self._changes: dict[int, int] = {}
        for snapshot in metadata.snapshots:
            self._all[snapshot.snapshot_id] = snapshot.timestamp_ms
            if operation_of(snapshot) != "replace":
                self._changes[snapshot.snapshot_id] = snapshot.timestamp_ms
        numbered = sorted(
            (item.sequence_number or 0, item.timestamp_ms) for item in metadata.snapshots
        )
        self._numbers = np.array([number for number, _ in numbered], np.int64)
        # For each sequence number, the earliest time of a snapshot with it or a higher one.
        times = np.array([*(time for _, time in numbered), metadata.last_updated_ms], np.int64)
        self._earliest = np.minimum.accumulate(times[::-1])[::-1]

    def changed(self, entries: pa.Table) -> Int64s:
        """Return the time at which each entry's snapshot changed the table; -1 if it is not known."""
        return _looked_up(entries, self._changes)

    def bound(self, entries: pa.Table) -> Int64s:
        """Return a time before which each entry's file was added."""
        known = _looked_up(entries, self._all)
        numbers = entries["file_sequence_number"].fill_null(0).to_numpy()
        later = np.searchsorted(self._numbers, numbers, side="right")
        # Without sequence numbers (format version 1) only the table's last change is certain.
        later[numbers == 0] = len(self._numbers)
        return np.where(known == _UNKNOWN, self._earliest[later], known)


def _looked_up(entries: pa.Table, times: Mapping[int, int]) -> Int64s:
    ids, codes = np.unique(
        entries["snapshot_id"].fill_null(_UNKNOWN).to_numpy(), return_inverse=True
    )
    return np.array([times.get(item, _UNKNOWN) for item in ids.tolist()], np.int64)[codes]
