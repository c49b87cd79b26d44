"""Whether a manifest list is complete: an Avro file that is cut at the end of a block is a valid shorter one.

The length of a list is not stored, so its files are counted and compared with the snapshot's summary. Summaries
can be wrong too (a writer that did not count removed files passes the wrong total to all later snapshots). So if a
list names fewer files than the summary, the entries decide: the files of the parent must either be present, or be
removed by this snapshot. If that cannot be determined, reads continue with a warning, while commits and
deletions are refused. A table whose summaries are known to be wrong sets `IGNORE_TOTALS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import CorruptFileError
from lake.core.base.units import natural_number
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.spec.properties.table_properties import IGNORE_TOTALS
from lake.core.table.manifests.api import (
    ListAdditions,
    live_manifests,
    read_list_additions,
    read_manifest_list,
    read_manifests,
)
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import DELETED
from lake.core.table.metadata.summaries import properties_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage

_HINT = (
    "restore the file from a backup; if it is complete and the summary is wrong, set the table's property "
    f"{IGNORE_TOTALS.name}=true"
)
_ENTRY_COLUMNS = ("status", "snapshot_id", "file_path", "content_offset")


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The number of files in a manifest list.

    Args:
        manifests: the number of manifests.
        data: the number of live data files; None if the list does not record it, as in format version 1.
        deletes: the number of live delete files.
    """

    manifests: int
    data: int | None
    deletes: int | None

    def plus(self, other: FileCounts) -> FileCounts:
        """Return the sums, unknown if a part is unknown."""
        data = None if self.data is None or other.data is None else self.data + other.data
        deletes = (
            None if self.deletes is None or other.deletes is None else self.deletes + other.deletes
        )
        return FileCounts(self.manifests + other.manifests, data, deletes)


def read_list(
    storage: Storage, metadata: TableMetadata, snapshot: Snapshot, *, rewritten: bool = False
) -> pa.Table:
    """Return a snapshot's manifests (`MANIFEST_COLUMNS`).

    Args:
        storage: the storage that contains the list.
        metadata: the table's metadata.
        snapshot: the list's snapshot.
        rewritten: its rows will be written again.

    Raises:
        CorruptFileError: the list cannot be read, or is empty although the snapshot has files.
        NotFoundError: it is missing.
    """
    manifests = read_manifest_list(storage, snapshot.manifest_list, rewritten=rewritten)
    check_list(metadata, snapshot, manifests)
    return manifests


def check_list(metadata: TableMetadata, snapshot: Snapshot, manifests: pa.Table) -> None:
    """Check a snapshot's manifests that were read without `read_list`.

    Raises:
        CorruptFileError: the list is empty although the snapshot has files, or is not the snapshot's.
    """
    # Wrong totals cannot explain an empty list, so this applies even if totals are ignored.
    message = (
        None
        if manifests.num_rows
        else missing_files_message(metadata, snapshot, count_list(manifests))
    )
    if message:
        raise CorruptFileError(message, hint=_HINT)
    newest = pc.max(manifests["sequence_number"]).as_py()
    if newest is not None and newest > max(snapshot.sequence_number or 0, 0):
        raise CorruptFileError(
            f"{snapshot.manifest_list} names a manifest with sequence number {newest}, but its snapshot has "
            f"sequence number {snapshot.sequence_number}"
        )


def lacking_column(manifests: pa.Table) -> str | None:
    """Return a column that a manifest of a list lacks, and that format version 2 requires; None for none."""
    names = (
        "added_snapshot_id",
        *(name for name in manifests.column_names if name.endswith("_count")),
    )
    return next((name for name in names if manifests[name].null_count), None)


def has_only_own_manifests(snapshot: Snapshot, manifests: pa.Table) -> bool:
    """Whether a snapshot contains no manifest of an earlier one, like the first snapshot of a history."""
    own = pc.equal(manifests["added_snapshot_id"], snapshot.snapshot_id)
    return pc.all(own).as_py() is not False


def verify_manifest_list(
    storage: Storage, metadata: TableMetadata, snapshot: Snapshot, manifests: pa.Table
) -> None:
    """Check that a list is complete, before a commit builds on it or files are deleted because of it.

    Raises:
        CorruptFileError: it names fewer files than it must, or may.
    """
    message = missing_files_message(metadata, snapshot, count_list(manifests))
    if message and not _removed_by_snapshot(storage, metadata, snapshot, manifests):
        raise CorruptFileError(message, hint=_HINT)


def count_list(manifests: pa.Table) -> FileCounts:
    """Count a list's live files."""
    return count_lists(manifests, [manifests.num_rows])[0]


def count_lists(manifests: pa.Table, sizes: Sequence[int]) -> list[FileCounts]:
    """Count the live files of concatenated lists; ``sizes`` are their numbers of rows."""
    counts = [manifests[column] for column in ("added_files_count", "existing_files_count")]
    live = sum(pc.fill_null(column, 0).to_numpy().astype(np.int64) for column in counts)
    unknown = np.logical_or(*(column.is_null().to_numpy() for column in counts))
    is_data = manifests["content"].to_numpy() == DATA
    ends = np.cumsum(sizes, dtype=np.int64)
    found = []
    for mask in (is_data, ~is_data):
        known = _sums(np.where(mask, live, 0), ends, sizes)
        lacking = _sums(mask & unknown, ends, sizes)
        found.append(
            [None if bad else int(number) for number, bad in zip(known, lacking, strict=True)]
        )
    return [FileCounts(*of_one) for of_one in zip(sizes, *found, strict=True)]


class RunningCounts:
    """Counts the live files of lists of which only what each adds to the one before it was decoded."""

    def __init__(self) -> None:
        self._last = FileCounts(0, 0, 0)

    def of(self, found: ListAdditions) -> list[FileCounts]:
        """Return the counts of the next lists."""
        counts = []
        for own, inherited in zip(
            count_lists(found.rows, found.sizes), found.inherited, strict=True
        ):
            self._last = self._last.plus(own) if inherited else own
            counts.append(self._last)
        return counts


def read_complete_additions(
    storage: Storage, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> Iterator[ListAdditions]:
    """Yield what the lists of snapshots, oldest first, add to each other; all are complete.

    Raises:
        CorruptFileError: a list cannot be read, or names fewer files than it must, or may.
        NotFoundError: a list does not exist.
    """
    owners: dict[str, list[Snapshot]] = {}
    for snapshot in snapshots:
        owners.setdefault(snapshot.manifest_list, []).append(snapshot)
    running = RunningCounts()
    for found in read_list_additions(storage, list(owners)):
        counted = zip(found.locations, found.inherited, found.sizes, running.of(found), strict=True)
        start = 0
        for location, inherited, size, counts in counted:
            own = found.rows.slice(start, size)
            start += size
            for snapshot in owners[location]:
                # The rows of the list before it are those of an earlier snapshot.
                if size or not inherited:
                    check_list(metadata, snapshot, own)
                if missing_files_message(metadata, snapshot, counts):
                    manifests = read_list(storage, metadata, snapshot)
                    verify_manifest_list(storage, metadata, snapshot, manifests)
        yield found


def _sums(values: Any, ends: Any, sizes: Sequence[int]) -> Any:
    before = np.concatenate(([0], np.cumsum(values)))
    return before[ends] - before[ends - np.asarray(sizes, np.int64)]


def missing_files_message(
    metadata: TableMetadata, snapshot: Snapshot, counts: FileCounts
) -> str | None:
    """Return a message if a list names fewer live files than its snapshot's summary counts; otherwise None."""
    where = f" in {counts.manifests} manifests"
    return _fewer(metadata, snapshot, counts, "total", "live", where)


def missing_added_files_message(
    metadata: TableMetadata, snapshot: Snapshot, manifests: pa.Table
) -> str | None:
    """Return a message if a list names fewer files added by its snapshot than the summary counts."""
    found = missing_added_files_messages(metadata, [snapshot], manifests, [manifests.num_rows])
    return found[0] if found else None


def missing_added_files_messages(
    metadata: TableMetadata,
    snapshots: Sequence[Snapshot],
    manifests: pa.Table,
    sizes: Sequence[int],
) -> list[str]:
    """Return messages about lists that name fewer files added by their snapshots than the summaries count.

    Args:
        metadata: the table's metadata.
        snapshots: the snapshots.
        manifests: the concatenated rows of their lists; those that the snapshots did not add may be left out.
        sizes: the number of rows of each list.
    """
    ids = np.array([snapshot.snapshot_id for snapshot in snapshots], np.int64)
    owners = np.repeat(np.arange(len(snapshots)), np.asarray(sizes, np.int64))
    is_own = pc.fill_null(
        pc.equal(manifests["added_snapshot_id"], pa.array(ids[owners])), fill_value=False
    )
    own = manifests.filter(is_own)
    own_sizes = np.bincount(owners[is_own.to_numpy()], minlength=len(snapshots))
    found = zip(snapshots, count_lists(own, own_sizes.tolist()), strict=True)
    messages = [_fewer(metadata, item, counts, "added", "added", "") for item, counts in found]
    return [message for message in messages if message]


@dataclass(frozen=True, slots=True)
class AddedCounts:
    """The files and rows that a snapshot's own data manifests add; None if a manifest list does not count them."""

    files: int | None
    rows: int | None


def added_counts(manifests: pa.Table) -> dict[int, AddedCounts]:
    """Count the files and rows that distinct data manifests add, by the snapshots that added the manifests."""
    columns = ("added_files_count", "added_rows_count")
    grouped = manifests.select(["added_snapshot_id", *columns]).group_by("added_snapshot_id")
    every = pc.ScalarAggregateOptions(skip_nulls=False)
    sums = grouped.aggregate([(column, "sum", every) for column in columns])
    return {
        row["added_snapshot_id"]: AddedCounts(*(row[f"{column}_sum"] for column in columns))
        for row in sums.to_pylist()
    }


def has_all_added_files(
    metadata: TableMetadata, snapshot: Snapshot, found: AddedCounts | None
) -> bool:
    """Whether an append's data manifests, found in a later snapshot's list, are known to be all that it added.

    Returns:
        False also if the summary does not count what was added, or is not to be trusted.
    """
    if snapshot.summary is None or IGNORE_TOTALS.of(metadata.properties):
        return False
    properties = properties_of(snapshot)
    counted = [properties.get(f"added-{kind}") for kind in ("data-files", "records")]
    if found is None:
        # Counters of zero are left out, as other counters may be: this one is written in any case.
        return counted == [None, None] and properties.get("changed-partition-count") == "0"
    files, rows = (None if text is None else natural_number(text) for text in counted)
    # check: all-manifests-of-append
    return files is not None and files == found.files and rows is not None and rows == found.rows


def _fewer(
    metadata: TableMetadata, snapshot: Snapshot, counts: FileCounts, key: str, word: str, where: str
) -> str | None:
    if IGNORE_TOTALS.of(metadata.properties):
        return None
    for found, kind in ((counts.data, "data"), (counts.deletes, "delete")):
        total = _total(snapshot, f"{key}-{kind}-files")
        if found is not None and found < total:
            return (
                f"{snapshot.manifest_list} names {found} {word} {kind} files{where}, "
                f"the summary of snapshot {snapshot.snapshot_id} counts {total}"
            )
    return None


def _total(snapshot: Snapshot, key: str) -> int:
    text = properties_of(snapshot).get(key, "")
    return natural_number(text) or 0


def _removed_by_snapshot(
    storage: Storage, metadata: TableMetadata, snapshot: Snapshot, manifests: pa.Table
) -> bool:
    """Whether all files of the parent are present or were removed by the snapshot: then the total is wrong."""
    parent = next(
        (one for one in metadata.snapshots if one.snapshot_id == snapshot.parent_snapshot_id), None
    )
    if parent is None or missing_added_files_message(metadata, snapshot, manifests):
        return False
    before = live_manifests(read_list(storage, metadata, parent))
    missing = without_manifests(before, manifests)
    if not missing.num_rows:
        return True
    expected = names_of_files(
        read_manifests(storage, missing, metadata, columns=_ENTRY_COLUMNS, live_only=True)
    )
    new = read_manifests(
        storage, without_manifests(manifests, before), metadata, columns=_ENTRY_COLUMNS
    )
    own = snapshot.snapshot_id
    accounted_for = names_of_files(
        {
            spec_id: entries.filter(
                pc.or_(
                    pc.not_equal(entries["status"], DELETED), pc.equal(entries["snapshot_id"], own)
                )
            )
            for spec_id, entries in new.items()
        }
    )
    return bool(pc.all(pc.is_in(expected, value_set=accounted_for), min_count=0).as_py())


def without_manifests(manifests: pa.Table, others: pa.Table) -> pa.Table:
    """Return the manifests of a list that another list does not have."""
    known = pc.is_in(
        normalize_locations(manifests["manifest_path"]),
        value_set=normalize_locations(others["manifest_path"]),
    )
    return manifests.filter(pc.invert(known))


def names_of_files(by_spec: Mapping[int, pa.Table]) -> pa.Array:
    """Return the names of files, with the offset for deletion vectors, which share their files.

    Args:
        by_spec: the files' entries, by partition spec id.
    """
    found = [
        pc.binary_join_element_wise(
            normalize_locations(entries["file_path"]),
            pc.fill_null(pc.cast(entries["content_offset"], pa.string()), "").combine_chunks(),
            " ",
        )
        for entries in by_spec.values()
    ]
    return pa.concat_arrays([pa.array([], pa.string()), *found])
