"""Compare the manifests of snapshots with those of their parents; each manifest is read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.catalogs.catalog import Table
from lake.core.changelog.file_diff import Entries
from lake.core.errors import BadInputError
from lake.core.manifests.api import read_manifest_lists, read_manifests
from lake.core.manifests.data_files import DATA
from lake.core.manifests.schemas import MANIFEST_SCHEMA
from lake.core.options import Option
from lake.core.snapshots.ancestry import is_first, snapshots_by_id
from lake.core.snapshots.completeness import (
    check_list,
    has_only_own_manifests,
    verify_manifest_list,
)

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


class UnknownParentError(BadInputError):
    """A snapshot's parent has expired, so the rows that the snapshot deleted cannot be determined."""


@dataclass(frozen=True)
class Manifests:
    """The data or the delete manifests of a snapshot and its parent.

    Args:
        after: the snapshot's manifests.
        before: the parent's manifests; None if it has expired.
        snapshot_id: the snapshot.
    """

    after: pa.Table
    before: pa.Table | None
    snapshot_id: int

    @cached_property
    def new(self) -> pa.Table:
        """The manifests that only the snapshot has."""
        if self.before is not None:
            return _without(self.after, self.before)
        return self.after.filter(pc.equal(self.after["added_snapshot_id"], self.snapshot_id))

    @cached_property
    def removed(self) -> pa.Table:
        """The manifests that only the parent has; empty if it has expired."""
        return self.after.slice(0, 0) if self.before is None else _without(self.before, self.after)

    @cached_property
    def shared(self) -> pa.Table:
        """The manifests of the snapshot that are not new."""
        return _without(self.after, self.new)


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot with its manifests and its parent's.

    Args:
        snapshot: the snapshot.
        data: manifests of data files; those of the parent may be unknown.
        deletes: manifests of delete files.
    """

    snapshot: Snapshot
    data: Manifests
    deletes: Manifests

    @property
    def is_orphan(self) -> bool:
        """Whether its parent has expired."""
        return self.data.before is None


def commits_of(table: Table, snapshots: Sequence[Snapshot]) -> list[Commit]:
    """Read the manifest lists of snapshots and of their parents.

    Raises:
        UnknownParentError: a parent has expired, and the deleted rows cannot be determined without it.
        CorruptFileError: a manifest list cannot be read.
    """
    known = snapshots_by_id(table.metadata)
    parents = [known.get(item.parent_snapshot_id or 0) for item in snapshots]
    wanted = {item.snapshot_id: item for item in (*snapshots, *parents) if item is not None}
    lists = _verified_lists(table, wanted)
    return [
        _commit(table, item, lists[item.snapshot_id], lists.get(item.parent_snapshot_id or 0))
        for item in snapshots
    ]


def _verified_lists(table: Table, snapshots: Mapping[int, Snapshot]) -> dict[int, pa.Table]:
    """Return the manifest lists of snapshots by the snapshots' ids.

    Lists that share a location are read once. Small lists are decoded together.
    """
    locations = list(dict.fromkeys(item.manifest_list for item in snapshots.values()))
    found: dict[str, pa.Table] = {}
    for names, sizes, rows in read_manifest_lists(table.storage, locations):
        # The rows of one list are often few: slices of one chunk are cheaper than slices of many.
        combined, start = rows.combine_chunks(), 0
        for name, size in zip(names, sizes, strict=True):
            found[name] = combined.slice(start, size)
            start += size
    lists = {number: found[item.manifest_list] for number, item in snapshots.items()}
    for number, manifests in lists.items():
        # A manifest missing in a list would be reported as a change.
        check_list(table.metadata, snapshots[number], manifests)
        verify_manifest_list(table.storage, table.metadata, snapshots[number], manifests)
    return lists


def _commit(table: Table, snapshot: Snapshot, after: pa.Table, before: pa.Table | None) -> Commit:
    if (
        before is None
        and is_first(table.metadata, snapshot)
        and has_only_own_manifests(snapshot, after)
    ):
        before = MANIFEST_SCHEMA.empty_table()
    data, deletes = _parted(after)
    old_data, old_deletes = (None, None) if before is None else _parted(before)
    number = snapshot.snapshot_id
    found = Manifests(deletes, old_deletes, number)
    if before is None:
        if found.new.num_rows:
            raise UnknownParentError(
                f"cannot determine the rows that snapshot {number} deleted: its parent has expired",
                hint=f"start with {Option.START} {number}",
            )
        found = Manifests(deletes, deletes, number)
    return Commit(snapshot, Manifests(data, old_data, number), found)


def _parted(manifests: pa.Table) -> tuple[pa.Table, pa.Table]:
    is_data = pc.equal(manifests["content"], DATA)
    if pc.all(is_data, min_count=0).as_py():
        # Most lists of many commits are long and name no delete manifests: they are not copied.
        return manifests, manifests.slice(0, 0)
    return manifests.filter(is_data), manifests.filter(pc.invert(is_data))


def _without(manifests: pa.Table, others: pa.Table) -> pa.Table:
    known = pc.is_in(manifests["manifest_path"], value_set=others["manifest_path"])
    return manifests.filter(pc.invert(known))


class EntryReader:
    """Reads the entries of manifests, each manifest once.

    Args:
        table: the table of the manifests.
        columns: the columns of the entries.
    """

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = columns
        self._found: dict[str, tuple[int, pa.Table]] = {}

    def read(self, manifests: Iterable[pa.Table]) -> None:
        """Read those of the manifests that are not read yet, together.

        Raises:
            CorruptFileError: a manifest does not match its manifest list.
        """
        rows = pa.concat_tables([MANIFEST_SCHEMA.empty_table(), *manifests])
        paths = rows["manifest_path"].to_pylist()
        first = {path: row for row, path in enumerate(paths) if path not in self._found}
        wanted = rows.take(pa.array(sorted(first.values()), pa.int64()))
        found = read_manifests(
            self._table.storage, wanted, self._table.metadata, columns=self._columns
        )
        for spec_id, entries in found.items():
            named = entries["manifest_path"].cast(pa.string()).combine_chunks().dictionary_encode()
            codes = named.indices.to_numpy(zero_copy_only=False)
            grouped = entries.take(pa.array(np.argsort(codes, kind="stable")))
            edges = np.searchsorted(np.sort(codes), np.arange(len(named.dictionary) + 1))
            for number, path in enumerate(named.dictionary.to_pylist()):
                part = grouped.slice(edges[number], edges[number + 1] - edges[number])
                self._found[path] = spec_id, part

    def of(self, manifests: pa.Table) -> Entries:
        """Return the entries of manifests that were read, by spec id."""
        by_spec: dict[int, list[pa.Table]] = {}
        for path in manifests["manifest_path"].to_pylist():
            if path in self._found:
                spec_id, entries = self._found[path]
                by_spec.setdefault(spec_id, []).append(entries)
        # Many small chunks are slower than a copy.
        return {
            spec_id: pa.concat_tables(parts).combine_chunks() for spec_id, parts in by_spec.items()
        }
