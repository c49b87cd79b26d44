"""Compare the manifests of snapshots with those of their parents; each manifest is read once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.read.changelog.file_diff import Entries
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots.ancestry import is_first, snapshots_by_id
from lake.core.table.snapshots.completeness import has_only_own_manifests, read_complete_additions

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


# Row numbers in a table of manifests.
Rows = npt.NDArray[np.int64]


class UnknownParentError(BadInputError):
    """A snapshot's parent has expired, so the rows that the snapshot deleted cannot be determined."""


@dataclass(frozen=True)
class Manifests:
    """The data or the delete manifests of a snapshot and its parent, as row numbers in a table of all manifests.

    Args:
        listed: the distinct manifests of all lists (`MANIFEST_COLUMNS`).
        after: the snapshot's manifests.
        before: the parent's manifests; None if it has expired.
        snapshot_id: the snapshot.
        inherits: whether the snapshot's manifests begin with all of its parent's.
    """

    listed: pa.Table
    after: Rows
    before: Rows | None
    snapshot_id: int
    inherits: bool

    @cached_property
    def new(self) -> Rows:
        """The manifests that only the snapshot has."""
        if self.before is None:
            owners = self.listed["added_snapshot_id"].take(pa.array(self.after))
            is_own = pc.fill_null(pc.equal(owners, self.snapshot_id), fill_value=False)
            found: Rows = self.after[np.asarray(is_own, bool)]
            return found
        if self.inherits:
            return self.after[len(self.before) :]
        return _without(self.after, self.before)

    @cached_property
    def removed(self) -> Rows:
        """The manifests that only the parent has; empty if it has expired."""
        if self.before is None or self.inherits:
            return self.after[:0]
        return _without(self.before, self.after)

    @cached_property
    def shared(self) -> Rows:
        """The manifests of the snapshot that are not new."""
        if self.before is not None and self.inherits:
            return self.before
        return _without(self.after, self.new)


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot with its manifests and its parent's.

    Args:
        snapshot: the snapshot.
        data: manifests of data files; those of the parent may be unknown.
        deletes: manifests of delete files; those of the parent are known.
    """

    snapshot: Snapshot
    data: Manifests
    deletes: Manifests

    @property
    def is_orphan(self) -> bool:
        """Whether its parent has expired."""
        return self.data.before is None

    @property
    def deletes_before(self) -> Rows:
        """The parent's delete manifests."""
        return self.deletes.after[:0] if self.deletes.before is None else self.deletes.before


def commits_of(table: Table, snapshots: Sequence[Snapshot]) -> list[Commit]:
    """Read the manifest lists of snapshots, oldest first, and of their parents.

    Raises:
        UnknownParentError: a parent has expired, and the deleted rows cannot be determined without it.
        CorruptFileError: a manifest list cannot be read.
    """
    known = snapshots_by_id(table.metadata)
    wanted: dict[int, Snapshot] = {}
    for item in snapshots:
        # Parents first: a list that only adds manifests to the one before it costs no more than what it adds.
        parent = known.get(item.parent_snapshot_id or 0)
        wanted |= {one.snapshot_id: one for one in (parent, item) if one is not None}
    lists = _Lists(table, list(wanted.values()))
    return [
        _commit(table, lists, item, known.get(item.parent_snapshot_id or 0)) for item in snapshots
    ]


class _Lists:
    """The manifests of some snapshots, each one once.

    Args:
        table: the table.
        snapshots: the snapshots, oldest first.
    """

    def __init__(self, table: Table, snapshots: Sequence[Snapshot]) -> None:
        parts = [MANIFEST_SCHEMA.empty_table()]
        # The begin and the end of each list among the concatenated rows: those that it adds follow those it inherits.
        self._spans: dict[str, tuple[int, int]] = {}
        begin = end = 0
        for found in read_complete_additions(table.storage, table.metadata, snapshots):
            parts.append(found.rows)
            for location, inherited, size in zip(
                found.locations, found.inherited, found.sizes, strict=True
            ):
                begin, end = begin if inherited else end, end + size
                self._spans[location] = begin, end
        rows = pa.concat_tables(parts).combine_chunks()
        paths = one_array(rows["manifest_path"]).dictionary_encode()
        codes = paths.indices.to_numpy().astype(np.int64)
        _, first = np.unique(codes, return_index=True)
        self.listed = rows.take(pa.array(first))
        is_data = pc.equal(rows["content"], DATA).to_numpy(zero_copy_only=False)
        self._codes = codes[is_data], codes[~is_data]
        # How many data manifests precede each row.
        self._data_before = np.concatenate(([0], np.cumsum(is_data)))

    def manifests(self, snapshot: Snapshot, parent: Snapshot | None) -> list[Manifests]:
        """Return the data and the delete manifests of a snapshot and its parent."""
        kinds = zip(self._codes, self._spans_of(snapshot), self._spans_of(parent), strict=True)
        return [
            Manifests(
                self.listed,
                codes[slice(*after)],
                None if before is None else codes[slice(*before)],
                snapshot.snapshot_id,
                before is not None and before[0] == after[0] and before[1] <= after[1],
            )
            for codes, after, before in kinds
            if after is not None
        ]

    def _spans_of(self, snapshot: Snapshot | None) -> list[tuple[int, int] | None]:
        """Return where the data and the delete manifests of a list begin and end."""
        if snapshot is None:
            return [None, None]
        begin, end = self._spans[snapshot.manifest_list]
        data = int(self._data_before[begin]), int(self._data_before[end])
        return [data, (begin - data[0], end - data[1])]


def _commit(table: Table, lists: _Lists, snapshot: Snapshot, parent: Snapshot | None) -> Commit:
    number = snapshot.snapshot_id
    data, deletes = lists.manifests(snapshot, parent)
    if parent is not None:
        return Commit(snapshot, data, deletes)
    every = np.concatenate((data.after, deletes.after))
    if is_first(table.metadata, snapshot) and has_only_own_manifests(
        snapshot, lists.listed.take(pa.array(every))
    ):
        nothing = every[:0]
        return Commit(
            snapshot,
            replace(data, before=nothing, inherits=True),
            replace(deletes, before=nothing, inherits=True),
        )
    if len(deletes.new):
        raise UnknownParentError(
            f"cannot determine the rows that snapshot {number} deleted: its parent has expired",
            hint=f"start with {Option.FROM_SNAPSHOT} {number}",
        )
    return Commit(snapshot, data, replace(deletes, before=deletes.after, inherits=True))


def _without(rows: Rows, others: Rows) -> Rows:
    return rows[~np.isin(rows, others)]


class EntryReader:
    """Reads the entries of manifests, each manifest once."""

    def __init__(self, table: Table, listed: pa.Table, columns: Sequence[str]) -> None:
        self._table = table
        self._listed = listed
        self._columns = columns
        # The entries of each spec in the order of their manifests, and the row number of each one's manifest.
        self._found: dict[int, tuple[pa.Table, Rows]] = {}

    def read(self, parts: Iterable[Rows]) -> None:
        """Read manifests; this is called once.

        Raises:
            CorruptFileError: a manifest does not match its manifest list.
        """
        is_wanted = np.zeros(self._listed.num_rows, bool)
        for part in parts:
            is_wanted[part] = True
        numbers = np.flatnonzero(is_wanted)
        wanted = self._listed.take(pa.array(numbers))
        found = read_manifests(
            self._table.storage, wanted, self._table.metadata, columns=self._columns
        )
        for spec_id, entries in found.items():
            paths = entries["manifest_path"].cast(pa.string())
            places = pc.index_in(paths, value_set=one_array(wanted["manifest_path"]))
            owners = numbers[places.to_numpy()]
            order = np.argsort(owners, kind="stable")
            # Many small chunks are slower than a copy.
            self._found[spec_id] = (
                entries.take(pa.array(order)).combine_chunks(),
                owners[order],
            )

    def of(self, manifests: Rows) -> Entries:
        """Return the entries of manifests that were read, by spec id."""
        if not len(manifests):
            return {}
        found = {}
        in_order = bool(np.all(np.diff(manifests) == 1))
        for spec_id, (entries, owners) in self._found.items():
            if in_order:
                begin, end = np.searchsorted(owners, (manifests[0], manifests[-1] + 1))
                part = entries.slice(begin, end - begin)
            else:
                part = entries.filter(pa.array(np.isin(owners, manifests)))
            if part.num_rows:
                found[spec_id] = part
        return found
