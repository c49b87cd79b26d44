"""Find the files that only expired snapshots reference: a set difference over Arrow columns.

When in doubt, files are kept. A retained snapshot whose manifests cannot be read in full (with the length and
counts of its list) stops the expiry; an expired snapshot's unreadable manifest is reported, and files that only it
lists are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError
from lake.core.data.sorting.spill_file import BatchSpool
from lake.core.io.storage.file_names import FileNames
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.table.manifests.api import ListAdditions, read_list_additions, read_manifests
from lake.core.table.manifests.batches import EngineOf, in_this_process
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots.ancestry import check_refs
from lake.core.table.snapshots.completeness import (
    FileCounts,
    RunningCounts,
    missing_files_message,
    verify_manifest_list,
)
from lake.core.transaction.garbage.manifest_files import (
    DATA_FILE,
    EQUALITY_DELETE,
    FILES,
    POSITION_DELETE,
    HeldNames,
    ManifestFiles,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.engine.tasks import Engine
    from lake.core.io.storage.storage import Storage

MANIFEST = "manifests"
MANIFEST_LIST = "manifest_lists"
STATISTICS = "statistics_files"
KINDS = (DATA_FILE, POSITION_DELETE, EQUALITY_DELETE, MANIFEST, MANIFEST_LIST, STATISTICS)
# At most this number of names stays in memory until the next call.
_FEW_NAMES = 100_000
_NO_INDICES = np.array([], np.int64)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Files that no retained snapshot references.

    Args:
        files: Arrow table of path, kind (one of `KINDS`) and bytes (0 if metadata does not say).
        unreadable: manifests and lists of expired snapshots that could not be read.
        spec_ids: partition specs that manifests of retained snapshots use.
    """

    files: pa.Table
    unreadable: tuple[str, ...]
    spec_ids: frozenset[int]

    def count(self, kind: str) -> int:
        """Return the number of files of a kind."""
        return int(pc.sum(pc.equal(self.files["kind"], kind)).as_py() or 0)

    @property
    def bytes(self) -> int:
        """The total size of the files as far as metadata contains it."""
        return int(pc.sum(self.files["bytes"]).as_py() or 0)


@dataclass(slots=True)
class Reachability:
    """Computes reachability; reads each manifest once per run.

    Args:
        storage: the storage that contains the manifests.
        names: compares locations as files.
        engine_of: returns the engine that reads manifests of some bytes; None for this process.
    """

    storage: Storage
    names: FileNames = field(default_factory=FileNames)
    engine_of: EngineOf = in_this_process
    # The name of the engine that has read manifests.
    engine: str = field(default="inline", init=False)
    # All manifests read so far, and for each list the indices of its manifests in that table.
    _known: pa.Table = field(default_factory=MANIFEST_SCHEMA.empty_table)
    _names: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    _lists: dict[str, Any] = field(default_factory=dict)
    # The file counts of lists that are not checked yet.
    _counts: dict[str, FileCounts] = field(default_factory=dict)
    # The manifests that only expired snapshots had in the last call, and the files they listed.
    _going: tuple[pa.Table, BatchSpool, tuple[str, ...]] | None = None
    # Manifests read together, and their live files.
    _live: list[tuple[frozenset[str], HeldNames]] = field(default_factory=list)
    # The last results of `garbage` and of `_held`, by what they were computed from: each step of an expiry computes
    # them again, and mostly from the same snapshots.
    _last_garbage: tuple[tuple[Any, ...], Garbage] | None = None
    _last_held: tuple[tuple[Any, ...], HeldNames] | None = None
    # The delete manifests of the last call, and the columns that they compare.
    _compared: tuple[frozenset[str], frozenset[int]] = (frozenset(), frozenset())

    def garbage(
        self,
        metadata: TableMetadata,
        expired: Sequence[Snapshot],
        kept: Sequence[Snapshot],
        *,
        before: TableMetadata | None = None,
        whole: bool = False,
    ) -> Garbage:
        """Return the files that expired snapshots reference and retained ones do not.

        Args:
            metadata: the table's metadata, with the partition specs of all these snapshots.
            expired: the snapshots to expire.
            kept: all retained snapshots.
            before: metadata from before the snapshots were removed, which still has the entries of their
                statistics; None if ``metadata`` has them.
            whole: the table goes, with the entries of statistics whose snapshots do not exist.

        Raises:
            CorruptFileError: a retained snapshot's manifest or manifest list cannot be read.
            NotFoundError: one is missing.
        """
        expired_ids = {item.snapshot_id for item in expired}

        def goes(snapshot_id: int) -> bool:
            return whole or snapshot_id in expired_ids

        going_statistics = _statistics(before or metadata, goes)
        named = _statistics(metadata, lambda snapshot_id: not goes(snapshot_id))
        key = (*map(_lists_of, (expired, kept)), going_statistics, named)
        if self._last_garbage is not None and self._last_garbage[0] == key:
            return self._last_garbage[1]
        kept_manifests = self._manifests(metadata, kept)
        unreadable: list[str] = []
        going = self._expired_manifests(metadata, expired, kept_manifests, unreadable)
        candidates = self._candidates(metadata, going, unreadable)
        # Read even if there are no candidates: a table with a broken manifest is not changed.
        live = self._live_names(metadata, kept_manifests)
        others = [
            _files(going["manifest_path"], MANIFEST, going["manifest_length"]),
            _files(pa.array([item.manifest_list for item in expired], pa.string()), MANIFEST_LIST),
            going_statistics,
        ]
        files = pa.concat_tables(others)
        if expired or files.num_rows:
            held = self._held(live, kept_manifests, kept, named)
            batches = map(candidates.read, range(len(candidates)))
            every = (*(pa.Table.from_batches([batch]) for batch in batches), files)
            files = self._once(pa.concat_tables([self._without(each, held) for each in every]))
        used = frozenset(kept_manifests["partition_spec_id"].unique().to_pylist())
        found = Garbage(files, tuple(unreadable), used)
        # What could not be read may be readable at the next call.
        self._last_garbage = None if unreadable else (key, found)
        return found

    def unreached(self, metadata: TableMetadata, files: pa.Table) -> pa.Table:
        """Return those of the files (path, kind, bytes) that no snapshot of the table references.

        Raises:
            CorruptFileError: a manifest or list cannot be read, or a ref points to a snapshot that does not exist.
            NotFoundError: one is missing.
        """
        check_refs(metadata)  # check: whole-refs
        manifests = self._manifests(metadata, metadata.snapshots)
        live = self._live_names(metadata, manifests)
        # A statistics entry that the catalog kept without its snapshot still references its file.
        named = _statistics(metadata, lambda _: True)
        if not files.num_rows:
            return files
        return self._without(files, self._held(live, manifests, metadata.snapshots, named))

    def referenced(self, metadata: TableMetadata) -> HeldNames:
        """Return the names (`FileNames.of`) of all files that the snapshots of the table reference.

        Raises:
            CorruptFileError: a manifest or list cannot be read.
            NotFoundError: one is missing.
        """
        manifests = self._manifests(metadata, metadata.snapshots)
        live = self._live_names(metadata, manifests)
        return self._held(
            live, manifests, metadata.snapshots, _statistics(metadata, lambda _: True)
        )

    def compared_columns(self, metadata: TableMetadata, kept: Sequence[Snapshot]) -> frozenset[int]:
        """Return the ids of the columns that live equality deletes of the snapshots compare.

        Raises:
            CorruptFileError: a manifest or list cannot be read.
            NotFoundError: one is missing.
        """
        manifests = self._manifests(metadata, kept)
        deletes = manifests.filter(pc.not_equal(manifests["content"], DATA))
        names = frozenset(deletes["manifest_path"].to_pylist())
        if names != self._compared[0]:
            found = read_manifests(
                self.storage, deletes, metadata, columns=("status", "equality_ids"), live_only=True
            )
            lists = [one_array(entries["equality_ids"]).flatten() for entries in found.values()]
            self._compared = (
                names,
                frozenset(column for item in lists for column in pc.unique(item).to_pylist()),
            )
        return self._compared[1]

    def _manifests(
        self,
        metadata: TableMetadata,
        snapshots: Collection[Snapshot],
        unreadable: list[str] | None = None,
    ) -> pa.Table:
        """Return the distinct manifests of snapshots."""
        locations = list(dict.fromkeys(snapshot.manifest_list for snapshot in snapshots))
        new = [location for location in locations if location not in self._lists]
        running = RunningCounts()
        before = _NO_INDICES
        for found in read_list_additions(self.storage, new, unreadable):
            before = self._remember(found, before)
            self._counts.update(zip(found.locations, running.of(found), strict=True))
        for snapshot in snapshots:
            self._check(metadata, snapshot, unreadable)
        is_used = np.zeros(self._known.num_rows, bool)
        for location in locations:
            is_used[self._lists.get(location, _NO_INDICES)] = True
        return self._known.filter(pa.array(is_used))

    def _check(
        self, metadata: TableMetadata, snapshot: Snapshot, unreadable: list[str] | None
    ) -> None:
        """Check that a manifest list is complete; files that it lacks would become garbage."""
        location = snapshot.manifest_list
        counts = self._counts.pop(location, None)
        if counts is None or not missing_files_message(metadata, snapshot, counts):
            return
        try:
            manifests = self._known.take(pa.array(self._lists[location]))
            verify_manifest_list(self.storage, metadata, snapshot, manifests)
        except BadInputError:
            self._counts[location] = counts
            if unreadable is None:
                raise
            unreadable.append(location)

    def _remember(self, found: ListAdditions, before: Any) -> Any:
        """Store the manifests of new lists, each once, because many lists share manifests.

        Args:
            found: what the lists add to those before them.
            before: the indices of the manifests of the list before the first one.

        Returns:
            the indices of the manifests of the last list.
        """
        paths = normalize_locations(found.rows["manifest_path"])
        is_new = pc.invert(pc.is_in(paths, value_set=self._names))
        new = _first_rows(found.rows.filter(is_new), paths.filter(is_new))
        self._known = pa.concat_tables([self._known, new])
        self._names = pa.concat_arrays([self._names, paths.filter(is_new).unique()])
        indices = pc.index_in(paths, value_set=self._names).to_numpy().astype(np.int64)
        start = 0
        for location, inherited, size in zip(
            found.locations, found.inherited, found.sizes, strict=True
        ):
            own = indices[start : start + size]
            before = np.concatenate((before, own)) if inherited else own
            self._lists[location] = before
            start += size
        return before

    def _expired_manifests(
        self,
        metadata: TableMetadata,
        expired: Sequence[Snapshot],
        kept: pa.Table,
        unreadable: list[str],
    ) -> pa.Table:
        found = self._manifests(metadata, expired, unreadable)
        shared = pc.is_in(
            normalize_locations(found["manifest_path"]),
            value_set=normalize_locations(kept["manifest_path"]),
        )
        return found.filter(pc.invert(shared))

    def _candidates(
        self, metadata: TableMetadata, going: pa.Table, unreadable: list[str]
    ) -> BatchSpool:
        """Return the live files of manifests that only expired snapshots have, as batches of `FILES`."""
        wanted = going.select(["manifest_path", "manifest_length", "partition_spec_id"])
        if self._going is None or not wanted.equals(self._going[0]):
            self._going = (wanted, *self.manifest_files.files(metadata, going))
        unreadable += self._going[2]
        return self._going[1]

    @property
    def manifest_files(self) -> ManifestFiles:
        """Reads which files manifests name."""
        return ManifestFiles(self.storage, self.names, self._engine_of)

    def _engine_of(self, size: int) -> Engine | None:
        engine = self.engine_of(size)
        if engine is not None:
            self.engine = engine.name
        return engine

    def _live_names(self, metadata: TableMetadata, manifests: pa.Table) -> list[HeldNames]:
        """Return the names of the live files of manifests that retained snapshots have."""
        paths_wanted = frozenset(manifests["manifest_path"].to_pylist())
        # Skip manifests of snapshots that only an earlier attempt retained; they would keep files.
        known = [(names, held) for names, held in self._live if names <= paths_wanted]
        read = frozenset().union(*(names for names, _ in known))
        new = manifests.filter(
            pc.invert(pc.is_in(manifests["manifest_path"], value_set=pa.array(read, pa.string())))
        )
        if new.num_rows:
            names = frozenset(new["manifest_path"].to_pylist())
            known.append((names, self.manifest_files.held(metadata, new)))
            self._live.append(known[-1])
        return [held for _, held in known]

    def _once(self, files: pa.Table) -> pa.Table:
        """Return the first row of each file."""
        return _first_rows(files, self.names.of(files["path"]))

    def _without(self, files: pa.Table, held: HeldNames) -> pa.Table:
        """Return the files that are not held."""
        is_held = held.names.has(self.names.of(files["path"]))
        return files.filter(pc.invert(is_held))  # check: kept-files

    def _held(
        self,
        live: Sequence[HeldNames],
        manifests: pa.Table,
        snapshots: Sequence[Snapshot],
        statistics: pa.Table,
    ) -> HeldNames:
        """Return the names of files that snapshots or statistics entries reference, and of the targets of links."""
        lists = tuple(item.manifest_list for item in snapshots)
        named = tuple(statistics["path"].to_pylist())
        # The lists say which manifests there are, and these which files.
        key = (lists, named, tuple(map(id, live)))
        if self._last_held is not None and self._last_held[0] == key:
            return self._last_held[1]
        columns = (manifests["manifest_path"], pa.array([*lists, *named], pa.string()))
        held = HeldNames.joined([*live, HeldNames.of(*map(self.names.of, columns))])
        # check: links-to-files
        held = HeldNames.joined([held, HeldNames.of(self.names.linked_in(held.folders))])
        self._last_held = (key, held) if len(held.names) <= _FEW_NAMES else None
        return held


def _files(locations: Any, kind: str, sizes: Any = None) -> pa.Table:
    count = len(locations)
    lengths = pa.array([0] * count, pa.int64()) if sizes is None else sizes
    return pa.table([locations, pa.array([kind] * count, pa.string()), lengths], schema=FILES)


def _lists_of(snapshots: Sequence[Snapshot]) -> tuple[tuple[int, str], ...]:
    return tuple((item.snapshot_id, item.manifest_list) for item in snapshots)


def _statistics(metadata: TableMetadata, wanted: Callable[[int], bool]) -> pa.Table:
    """Return the table and partition statistics files of the chosen snapshots."""
    found = [
        item
        for item in (*metadata.statistics, *metadata.partition_statistics)
        if wanted(item.snapshot_id)
    ]
    return _files(
        pa.array([item.statistics_path for item in found], pa.string()),
        STATISTICS,
        pa.array([item.file_size_in_bytes for item in found], pa.int64()),
    )


def _first_rows(table: pa.Table, names: pa.Array) -> pa.Table:
    """Return the first row of each name."""
    encoded = names.dictionary_encode()
    _, first = np.unique(encoded.indices.to_numpy(), return_index=True)
    return table.take(pa.array(np.sort(first)))
