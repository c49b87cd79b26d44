"""Produce the manifests of a new snapshot from an operation and the parent snapshot.

Manifests without a removed file are carried over unchanged. Merging follows
Iceberg Java's ManifestMergeManager. Source: MergingSnapshotProducer, ManifestFilterManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.errors import BadInputError, CommitConflictError, CorruptFileError, RefusedError
from lake.core.io.avro.container import runs
from lake.core.io.work_ahead import computed
from lake.core.spec.properties.table_properties import (
    MANIFEST_BYTES,
    MANIFEST_MERGE,
    MANIFESTS_TO_MERGE,
    SERIALIZABLE,
)
from lake.core.table.manifests.api import (
    ManifestContext,
    describe_manifest,
    encode_entries,
    pack_manifest,
    read_manifest,
    read_manifests,
    weight_of,
)
from lake.core.table.manifests.clusters import entries_per_manifest
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import ADDED, DELETED, EXISTING, MANIFEST_SCHEMA
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots.completeness import lacking_column, read_list, verify_manifest_list
from lake.core.table.snapshots.row_lineage import assign_row_ids
from lake.core.table.snapshots.summary import (
    COUNTED_COLUMNS,
    REPLACE_PARTITIONS,
    SummaryCounter,
    counted_totals,
)
from lake.core.transaction.commit import conflicts
from lake.core.transaction.commit.added_entries import entry_tables
from lake.core.transaction.commit.clustered_entries import ClusteredEntries
from lake.core.transaction.commit.delete_conflicts import DeleteConflicts
from lake.core.transaction.commit.operations import (
    AppendFiles,
    DropDuplicates,
    EntryTable,
    Operation,
    OverwriteFiles,
    RecountTotals,
    ReplacePartitions,
    RewriteDeletes,
    RewriteFiles,
    RewriteManifests,
    RowDelta,
)
from lake.core.transaction.commit.partition_index import LivePartitions
from lake.core.transaction.commit.removed_files import (
    AGAIN,
    Removal,
    check_sole_spec,
    find_extra_entries,
    find_live,
    refuse_live,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Table

_LIVE_COUNTS = ("added_files_count", "existing_files_count")
# Operations on entries that add no file, each with a draft of its own.
_OF_ENTRIES = (RewriteManifests, DropDuplicates, RecountTotals)
_REMOVAL_COUNTS = ("deleted-", "removed-")
# The content of a delete manifest in the manifest list.
_DELETES = 1
# The bytes of manifests that one thread reads at a time.
_WINDOW_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parent:
    """The snapshot on which a new one is built.

    Args:
        snapshot: the branch's head, or the previous step's snapshot; None for an empty branch.
        manifests: rows of its manifest list, newest first.
        delete_conflicts: compares new delete files with the live ones.
        partitions: finds the manifests of the partitions that the steps replace.
        written_entries: live entries, with ``spec_id``, of manifests that earlier steps wrote, by location.
    """

    snapshot: Snapshot | None
    manifests: list[dict[str, Any]]
    delete_conflicts: DeleteConflicts
    partitions: LivePartitions
    written_entries: dict[str, pa.Table]

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot's id."""
        return self.snapshot.snapshot_id if self.snapshot else None

    @classmethod
    def read(
        cls,
        storage: Storage,
        metadata: TableMetadata,
        snapshot: Snapshot | None,
        producers: Iterable[SnapshotProducer],
    ) -> Parent:
        """Read a branch's head from storage, for consecutive steps.

        Raises:
            CorruptFileError: its manifest list is damaged or incomplete: files missing from it would be lost.
        """
        written_entries: dict[str, pa.Table] = {}
        delete_conflicts = DeleteConflicts(storage, written_entries)
        for producer in producers:
            producer.declare_deletes(delete_conflicts)
        listed = MANIFEST_SCHEMA.empty_table()
        if snapshot is not None:
            listed = read_list(storage, metadata, snapshot, rewritten=True)
            verify_manifest_list(storage, metadata, snapshot, listed)
            _check_head(metadata, snapshot, listed)
        return cls(
            snapshot,
            listed.to_pylist(),
            delete_conflicts,
            LivePartitions(storage, written_entries),
            written_entries,
        )

    def remember(self, added: _Added) -> None:
        """Keep the entries of a written manifest, so that later steps need not read it."""
        if len(added.rows) == 1:
            entries = added.entries
            ids = pa.repeat(pa.scalar(added.spec_id, pa.int32()), entries.num_rows)
            location = added.rows[0]["manifest_path"]
            self.written_entries[location] = entries.append_column("spec_id", ids)


@dataclass(frozen=True, slots=True)
class Draft:
    """The snapshot of one attempt.

    Args:
        manifests: rows of its manifest list, newest first.
        operation: the operation's name in the summary.
        summary: counters and totals.
        added_rows: the number of row ids that it uses, in format version 3.
    """

    manifests: list[dict[str, Any]]
    operation: str
    summary: dict[str, str]
    added_rows: int = 0


@dataclass(slots=True)
class SnapshotProducer:
    """Writes the manifests of one snapshot, for one or more attempts.

    Args:
        table: the table.
        storage: the table's storage, or a writer in front of it.
        operation: the snapshot's operation.
        snapshot_id: the new snapshot's id, the same for every attempt.
        operation_id: a UUID that is part of the file names.
        written: receives the location of every file that is written.
    """

    table: Table
    storage: Storage
    operation: Operation
    snapshot_id: int
    operation_id: str
    written: list[str] = field(default_factory=list)
    _data: list[EntryTable] | None = None
    _deletes: list[EntryTable] = field(default_factory=list)
    _added: list[_Added] | None = None
    # The manifests that replace those of `RewriteManifests`: their entries do not depend on the attempt.
    _rewritten: list[dict[str, Any]] | None = None

    @property
    def paths(self) -> list[str]:
        """The files that it adds; valid after a draft."""
        columns = [*(self._data or []), *self._deletes]
        return [path for part in columns for path in part.entries["file_path"].to_pylist()]

    def declare_deletes(self, delete_conflicts: DeleteConflicts) -> None:
        """Declare the delete files that the operation adds and replaces."""
        if isinstance(self.operation, RowDelta | RewriteDeletes):
            _, deletes = self._entry_tables(self.table.metadata)
            delete_conflicts.declare_deletes(
                [part.entries for part in deletes], self.operation.replaced_deletes
            )

    def draft(self, metadata: TableMetadata, parent: Parent) -> Draft:
        """Validate against all commits since the base, then write the files of the new snapshot.

        Raises:
            CommitConflictError: the operation no longer holds on this parent.
        """
        if isinstance(self.operation, RewriteManifests):
            return self._with_new_manifests(metadata, parent, self.operation)
        if isinstance(self.operation, DropDuplicates):
            return self._without_duplicates(metadata, parent, self.operation)
        if isinstance(self.operation, RecountTotals):
            return self._recounted(metadata, parent)
        data, deletes = self._entry_tables(metadata)
        removal = self._removal(metadata, parent, data, deletes)
        counter = SummaryCounter()
        edit = self._edit(metadata, parent.manifests, removal, counter)
        new_rows = self._write_added(metadata, counter, parent)
        affected = [row for row in parent.manifests if row["manifest_path"] in edit.manifests]
        kept = [row for row in parent.manifests if row["manifest_path"] not in edit.manifests]
        live = [*new_rows, *affected, *(row for row in kept if self._stays(row))]
        rows = [
            *self._merge(metadata, [row for row in live if row["content"] == DATA], edit),
            *self._merge(metadata, [row for row in live if row["content"] != DATA], edit),
        ]
        # As in Java, a manifest that is dropped because all its entries are deleted does not count as replaced.
        empty = _paths(kept) - _paths(live)
        before = _paths(parent.manifests) - empty
        after = _paths(rows)
        counter.manifests(
            created=len(after - before), kept=len(after & before), replaced=len(before - after)
        )
        rows, added_rows = assign_row_ids(metadata, rows)
        summary = self._summary(metadata, parent.snapshot, counter)
        return Draft(rows, self._operation_name(removal), summary, added_rows)

    def _with_new_manifests(
        self, metadata: TableMetadata, parent: Parent, operation: RewriteManifests
    ) -> Draft:
        """Replace manifests by others with the same live entries; those that others added stay beside them."""
        chosen = [row for row in parent.manifests if row["manifest_path"] in operation.manifests]
        if len(chosen) < len(operation.manifests):  # check: manifests-still-live
            raise CommitConflictError(
                "another writer replaced a manifest that was about to be rewritten", hint=AGAIN
            )
        if self._rewritten is None:
            groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
            for row in chosen:
                groups.setdefault((row["content"], row["partition_spec_id"]), []).append(row)
            self._rewritten = [
                written
                for (content, spec_id), rows in groups.items()
                for written in self._clustered(metadata, operation, rows, content, spec_id)
            ]
        number = next_sequence_number(metadata)
        new = [{**row, "sequence_number": number} for row in self._rewritten]
        kept = [row for row in parent.manifests if row["manifest_path"] not in operation.manifests]
        rows = sorted([*new, *kept], key=lambda row: int(row["content"] != DATA))
        counter = SummaryCounter()
        counter.manifests(created=len(new), kept=len(kept), replaced=len(chosen))
        counter.counters["entries-processed"] = sum(row["existing_files_count"] for row in new)
        rows, added_rows = assign_row_ids(metadata, rows)
        summary = self._summary(metadata, parent.snapshot, counter)
        return Draft(rows, self._operation_name(Removal()), summary, added_rows)

    def _without_duplicates(
        self, metadata: TableMetadata, parent: Parent, operation: DropDuplicates
    ) -> Draft:
        """Leave out all entries of each file but the oldest.

        They are not marked as deleted: Iceberg Java's expiry deletes the files of such entries, and these are live.
        So the summary counts no deleted files, only smaller totals.
        """
        if parent.snapshot_id != operation.base_snapshot_id:  # check: head-of-duplicates
            raise CommitConflictError(
                "another writer committed after the entries of duplicate files were compared",
                hint=AGAIN,
            )
        found = find_live(self.storage, metadata, parent.manifests, operation.paths)
        counter, rewritten, seen = SummaryCounter(), [], set[str]()
        kept = [row for row in parent.manifests if row["manifest_path"] not in found.manifests]
        changed = [row for row in parent.manifests if row["manifest_path"] in found.manifests]
        for row, entries, extra in find_extra_entries(
            self.storage, metadata, changed, operation.paths
        ):
            spec_id = row["partition_spec_id"]
            seen.update(entries["file_path"].filter(extra).to_pylist())
            counter.remove(entries.filter(extra), spec_id)
            left = entries.filter(pc.invert(extra))
            if left.num_rows:
                existing = self._mark(left, pa.array([False] * left.num_rows))
                rewritten += self._write(metadata, spec_id, existing, DATA)
        if seen != operation.paths:
            raise CommitConflictError("a file is no longer in the table twice", hint=AGAIN)
        rows = sorted([*rewritten, *kept], key=lambda row: int(row["content"] != DATA))
        counter.manifests(created=len(rewritten), kept=len(kept), replaced=len(changed))
        rows, added_rows = assign_row_ids(metadata, rows)
        summary = self._summary(metadata, parent.snapshot, counter)
        shown = {k: text for k, text in summary.items() if not k.startswith(_REMOVAL_COUNTS)}
        return Draft(rows, self._operation_name(Removal()), shown, added_rows)

    def _recounted(self, metadata: TableMetadata, parent: Parent) -> Draft:
        """Keep all manifests, and count the totals from their entries."""
        listed = pa.Table.from_pylist(parent.manifests, schema=MANIFEST_SCHEMA)
        live = read_manifests(
            self.storage, listed, metadata, columns=COUNTED_COLUMNS, live_only=True
        )
        counter = SummaryCounter()
        counter.manifests(created=0, kept=listed.num_rows, replaced=0)
        rows, added_rows = assign_row_ids(metadata, parent.manifests)
        summary = {**counter.summary(None), **counted_totals(live)}
        return Draft(rows, self._operation_name(Removal()), summary, added_rows)

    def _clustered(
        self,
        metadata: TableMetadata,
        operation: RewriteManifests,
        rows: Sequence[dict[str, Any]],
        content: int,
        spec_id: int,
    ) -> list[dict[str, Any]]:
        """Write the live entries of manifests with one spec again; the number of entries must be that of the list."""
        context = ManifestContext.of(metadata, spec_id, content)
        with closing(ClusteredEntries(context, operation.sort_by)) as entries:
            try:
                entries.add(self.storage, metadata, rows)
            except ValueError as error:
                raise self._damaged(error) from error
            counts = [row[name] for row in rows for name in _LIVE_COUNTS]
            if None not in counts and sum(counts) != entries.live:
                raise CorruptFileError(
                    f"manifests of {self.table.identifier} contain {entries.live} live files, their list says "
                    f"{sum(counts)}"
                )
            size = sum(row["manifest_length"] for row in rows)
            pieces = entries.divided(
                entries_per_manifest(size, entries.read, operation.target_bytes)
            )
            if operation.measured is not None and entries.live:
                operation.measured(content, spec_id, entries.clustering(pieces))
            return [
                self._put(metadata, piece, context, data) for piece, data in entries.packed(pieces)
            ]

    def _summary(
        self, metadata: TableMetadata, parent: Snapshot | None, counter: SummaryCounter
    ) -> dict[str, str]:
        mark = {REPLACE_PARTITIONS: "true"} if isinstance(self.operation, ReplacePartitions) else {}
        previous = properties_of(parent) if parent and parent.summary else None
        if parent and previous is None:
            return mark
        return {**mark, **counter.summary(previous), **counter.partitions(metadata)}

    def _entry_tables(self, metadata: TableMetadata) -> tuple[list[EntryTable], list[EntryTable]]:
        """Return the added data files and the added delete files."""
        if self._data is None:
            operation = self.operation
            assert not isinstance(operation, _OF_ENTRIES)  # noqa: S101 - they add no file
            deletes = operation.deletes if isinstance(operation, RowDelta | RewriteDeletes) else ()
            self._deletes = entry_tables(deletes, metadata)
            data = () if isinstance(operation, RewriteDeletes) else operation.added
            self._data = entry_tables(data, metadata)
        return self._data, self._deletes

    def _operation_name(self, removal: Removal) -> str:
        operation = self.operation
        if isinstance(operation, AppendFiles):
            return "append"
        if isinstance(operation, RewriteFiles | RewriteDeletes | RewriteManifests | RecountTotals):
            return "replace"
        if isinstance(operation, ReplacePartitions):
            return "overwrite"
        if isinstance(operation, RowDelta):
            removes = bool(self._deletes or removal.paths)
            plain = "append" if self._data else "delete"
            return "overwrite" if bool(self._data) == removes else plain
        if not self._data or isinstance(operation, DropDuplicates):
            return "delete"
        by_filter = operation.conflict_filter is not None
        return "overwrite" if removal.paths or by_filter else "append"

    # Removing

    def _removal(
        self,
        metadata: TableMetadata,
        parent: Parent,
        data: list[EntryTable],
        deletes: list[EntryTable],
    ) -> Removal:
        """Return the entries to remove, after validating that the operation still holds on this parent."""
        operation, storage = self.operation, self.storage
        assert not isinstance(operation, _OF_ENTRIES)  # noqa: S101 - they have drafts of their own
        head_id = parent.snapshot_id
        if isinstance(operation, AppendFiles):
            if operation.only_new:
                refuse_live(storage, metadata, parent.manifests, data)
            return Removal()
        since = conflicts.CommitsSince(storage, metadata, head_id, operation.base_snapshot_id)
        if isinstance(operation, ReplacePartitions):
            return self._replaced(metadata, operation, parent, since, data)
        if isinstance(operation, RowDelta):
            return self._superseded(metadata, operation, parent, since, data, deletes)
        if isinstance(operation, RewriteDeletes):
            return self._rewritten_deletes(metadata, operation, parent, deletes)
        removed = frozenset(operation.removed_paths)
        files = find_live(storage, metadata, parent.manifests, removed)
        if head_id != operation.base_snapshot_id:
            if isinstance(operation, OverwriteFiles):
                if operation.isolation == SERIALIZABLE:
                    conflicts.refuse_new_data(since, operation.conflict_filter)
                conflicts.refuse_new_deletes(since)
            else:
                keeps_sequence = operation.data_sequence_number is not None
                conflicts.refuse_new_deletes_for(
                    since, files.partitions, ignore_equality=keeps_sequence
                )
        return Removal(removed, files.manifests, frozenset(operation.removed_deletes))

    def _superseded(
        self,
        metadata: TableMetadata,
        operation: RowDelta,
        parent: Parent,
        since: conflicts.CommitsSince,
        data: list[EntryTable],
        deletes: list[EntryTable],
    ) -> Removal:
        replaced = frozenset(operation.replaced_deletes)
        added = [part.entries for part in deletes]
        parent.delete_conflicts.check(metadata, parent.manifests, added, replaced)
        if operation.sole_spec is not None:  # check: sole-spec
            check_sole_spec(self.table.storage, metadata, parent.manifests, operation.sole_spec)
        removed = frozenset(operation.removed_paths)
        gone = find_live(self.storage, metadata, parent.manifests, removed)
        if operation.validates:
            named = _texts(deletes, "referenced_data_file") - _texts(data, "file_path")
            files = find_live(self.storage, metadata, parent.manifests, named)
            if since.head_id != since.base_id:
                if operation.isolation == SERIALIZABLE:
                    conflicts.refuse_new_data(since, operation.conflict_filter)
                conflicts.refuse_new_deletes_for(  # check: deletes-of-removed-files
                    since,
                    {**files.partitions, **gone.partitions},
                    ignore_equality=operation.ignore_equality,
                )
        return Removal(removed, gone.manifests, replaced)

    def _rewritten_deletes(
        self,
        metadata: TableMetadata,
        operation: RewriteDeletes,
        parent: Parent,
        deletes: list[EntryTable],
    ) -> Removal:
        replaced = frozenset(operation.replaced_deletes)
        added = [part.entries for part in deletes]
        parent.delete_conflicts.check(metadata, parent.manifests, added, replaced)
        # check: referenced-files-live
        find_live(self.storage, metadata, parent.manifests, frozenset(operation.referenced_paths))
        return Removal(deletes=replaced)

    def _replaced(
        self,
        metadata: TableMetadata,
        operation: ReplacePartitions,
        parent: Parent,
        since: conflicts.CommitsSince,
        data: list[EntryTable],
    ) -> Removal:
        if not data:
            raise BadInputError("cannot determine the partitions to replace: no files were added")
        partitions = _added_partitions(metadata, data)
        if operation.validates and since.head_id != since.base_id:
            if operation.isolation == SERIALIZABLE:
                conflicts.refuse_new_data(since, None, partitions)
            conflicts.refuse_new_deletes(since, partitions)
        parent.partitions.refuse_rows_elsewhere(metadata, parent.manifests, data)
        removed_paths: list[str] = []
        columns = ["file_path", "partition"]
        holders = parent.partitions.holders(metadata, parent.manifests, partitions)
        for row in holders:
            entries = read_manifest(self.storage, row, metadata, columns=columns, live_only=True)
            if partitions is not None:
                mask = pa.array(conflicts.in_partitions(entries, partitions), pa.bool_())
                entries = entries.filter(mask)
            removed_paths += entries["file_path"].to_pylist()
        return Removal(frozenset(removed_paths), frozenset(row["manifest_path"] for row in holders))

    def _edit(
        self,
        metadata: TableMetadata,
        current: list[dict[str, Any]],
        removal: Removal,
        counter: SummaryCounter,
    ) -> _Edit:
        affected = [
            row for row in current if removal and removal.affects(self.storage, row, metadata)
        ]
        return _Edit(removal, frozenset(_paths(affected)), counter)

    def _stays(self, row: Mapping[str, Any]) -> bool:
        return row["added_snapshot_id"] == self.snapshot_id or _has_live(row)

    def _without_removed(
        self, metadata: TableMetadata, manifests: Sequence[dict[str, Any]], edit: _Edit
    ) -> list[dict[str, Any]]:
        """Return manifests, and instead of those with removed files the new ones that replace them."""
        affected = [row for row in manifests if row["manifest_path"] in edit.manifests]
        replaced: dict[str, list[dict[str, Any]]] = {}

        def edited(some: list[dict[str, Any]]) -> list[_Edited]:
            return self._edited(metadata, some, edit.removal)

        windows = runs(affected, weight_of, _WINDOW_BYTES)
        for item in chain.from_iterable(computed(edited, windows)):
            edit.counter.remove(item.removed, item.context.spec.spec_id)
            replaced |= {path: [] for path in item.paths}
            replaced[item.paths[0]] = [
                self._put(metadata, piece, item.context, data) for piece, data in item.pieces
            ]
        return [new for row in manifests for new in replaced.get(row["manifest_path"], [row])]

    def _edited(
        self, metadata: TableMetadata, some: Sequence[dict[str, Any]], removal: Removal
    ) -> list[_Edited]:
        """Read manifests together, and encode them without the removed files.

        A manifest of which files remain is replaced by one of its own. Those without remaining files are joined: only
        this snapshot has their entries, and each manifest takes a request.
        """
        listed = pa.Table.from_pylist(some, schema=MANIFEST_SCHEMA)
        found = read_manifests(
            self.storage, listed, metadata, live_only=True, rewritten=True, threads=1
        )
        content = some[0]["content"]
        edited = []
        for spec_id, entries in found.items():
            context = ManifestContext.of(metadata, spec_id, content)
            removed = removal.matches(entries, is_data=content == DATA)
            marked = self._mark(entries, removed)
            # One call for all of them: most are small, and a call takes as long as the records of many entries.
            records = self._records(marked, context)
            owners = entries["manifest_path"].cast(pa.string())
            kept = set(owners.filter(pc.invert(removed)).unique().to_pylist())
            paths = [row["manifest_path"] for row in some if row["partition_spec_id"] == spec_id]
            gone = [path for path in paths if path not in kept]
            for group in filter(None, [gone, *([path] for path in paths if path in kept)]):
                own = pc.is_in(owners, value_set=pa.array(group, pa.string()))
                pieces = self._packed(metadata, marked.filter(own), records.filter(own), context)
                part = entries.filter(pc.and_(own, removed))
                edited.append(_Edited(group, context, part, list(pieces)))
        return edited

    def _mark(self, entries: pa.Table, deleted: Any) -> pa.Table:
        """Mark entries as existing, or as deleted by this snapshot; sequence numbers are kept."""
        status = pc.if_else(
            deleted, pa.scalar(DELETED, pa.int32()), pa.scalar(EXISTING, pa.int32())
        )
        owner = pc.if_else(deleted, pa.scalar(self.snapshot_id, pa.int64()), entries["snapshot_id"])
        return _with(_with(entries, "status", status), "snapshot_id", owner)

    # Adding

    def _write_added(
        self, metadata: TableMetadata, counter: SummaryCounter, parent: Parent
    ) -> list[dict[str, Any]]:
        if self._added is None:
            # They are written once: added entries inherit the sequence number of the attempt that succeeds.
            data, deletes = self._entry_tables(metadata)
            self._added = [
                self._added_of(metadata, part, content)
                for content, added in ((DATA, data), (_DELETES, deletes))
                for part in added
            ]
        for added in self._added:
            counter.add(added.entries, added.spec_id)
            parent.remember(added)
        sequence_number = next_sequence_number(metadata)
        return [_at_sequence(row, sequence_number) for added in self._added for row in added.rows]

    def _added_of(self, metadata: TableMetadata, part: EntryTable, content: int) -> _Added:
        operation, entries, number = self.operation, part.entries, None
        if isinstance(operation, RewriteFiles | RewriteDeletes):
            number = operation.data_sequence_number  # check: sequence-number-of-rewrite
        for column, value in (("snapshot_id", self.snapshot_id), ("sequence_number", number)):
            values = pa.repeat(pa.scalar(value, pa.int64()), entries.num_rows)
            entries = _with(entries, column, values)
        written = self._write(metadata, part.spec_id, entries, content)
        return _Added(part.spec_id, entries, written)

    def _write(
        self,
        metadata: TableMetadata,
        spec_id: int,
        entries: pa.Table,
        content: int,
    ) -> list[dict[str, Any]]:
        """Write entries of one spec as manifests of about the target size."""
        context = ManifestContext.of(metadata, spec_id, content)
        return [
            self._put(metadata, piece, context, data)
            for piece, data in self._encoded(metadata, entries, context)
        ]

    def _encoded(
        self, metadata: TableMetadata, entries: pa.Table, context: ManifestContext
    ) -> Iterator[tuple[pa.Table, bytes]]:
        """Yield entries in pieces of about the target size, each with its manifest."""
        for piece in _pieces(entries, MANIFEST_BYTES.of(metadata.properties)):
            yield from self._packed(metadata, piece, self._records(piece, context), context)

    def _records(self, entries: pa.Table, context: ManifestContext) -> pa.ChunkedArray:
        """Return entries as records of a manifest."""
        try:
            return pa.chunked_array(encode_entries(entries, context), pa.large_binary())
        except ValueError as error:
            if pc.any(pc.equal(entries["status"], ADDED)).as_py():
                raise
            raise self._damaged(error) from error

    def _packed(
        self,
        metadata: TableMetadata,
        entries: pa.Table,
        records: pa.ChunkedArray,
        context: ManifestContext,
    ) -> Iterator[tuple[pa.Table, bytes]]:
        """Yield entries, which are encoded as records, in pieces of about the target size, each with its manifest."""
        partition, start = entries.schema.field("partition").type, 0
        for piece in _pieces(entries, MANIFEST_BYTES.of(metadata.properties)):
            own = records.slice(start, piece.num_rows)
            start += piece.num_rows
            yield piece, pack_manifest(own.chunks, partition, context)

    def _damaged(self, error: ValueError) -> CorruptFileError:
        """Return the error of an entry of an earlier snapshot's manifest that cannot be written again."""
        return CorruptFileError(f"an entry of {self.table.identifier} is damaged: {error}")

    def _put(
        self, metadata: TableMetadata, entries: pa.Table, context: ManifestContext, data: bytes
    ) -> dict[str, Any]:
        """Store a manifest, and return its row of the manifest list."""
        location = self._new_manifest()
        self.storage.write(location, data)
        return describe_manifest(
            entries,
            context,
            location=location,
            length=len(data),
            sequence_number=next_sequence_number(metadata),
            added_snapshot_id=self.snapshot_id,
        )

    def _new_manifest(self) -> str:
        name = f"{self.operation_id}-m{len(self.written)}.avro"
        location = locations.join(self.table.metadata_folder, name)
        self.written.append(location)
        return location

    # Merging

    def _merge(
        self, metadata: TableMetadata, manifests: Sequence[dict[str, Any]], edit: _Edit
    ) -> list[dict[str, Any]]:
        """Merge small manifests, and remove the files of the edit.

        Both are done at once: a manifest with removed files is not written before it is merged. Its length is about
        the same without them, because their entries remain, as those of deleted files.
        """
        if not MANIFEST_MERGE.of(metadata.properties) or not manifests:
            return self._without_removed(metadata, manifests, edit)
        target = MANIFEST_BYTES.of(metadata.properties)
        fewest = MANIFESTS_TO_MERGE.of(metadata.properties)
        newest = manifests[0]["manifest_path"]
        merged: list[dict[str, Any]] = []
        for spec_id in sorted({row["partition_spec_id"] for row in manifests}, reverse=True):
            group = [row for row in manifests if row["partition_spec_id"] == spec_id]
            for packed in pack_end(group, target):
                holds_newest = any(row["manifest_path"] == newest for row in packed)
                if len(packed) == 1 or (holds_newest and len(packed) < fewest):
                    merged += packed
                else:
                    merged += self._merge_bin(metadata, spec_id, packed, edit)
        return self._without_removed(metadata, merged, edit)

    def _merge_bin(
        self,
        metadata: TableMetadata,
        spec_id: int,
        packed: Sequence[dict[str, Any]],
        edit: _Edit,
    ) -> list[dict[str, Any]]:
        rows = pa.Table.from_pylist(packed, schema=MANIFEST_SCHEMA)
        content = packed[0]["content"]
        try:
            entries = read_manifests(self.storage, rows, metadata, rewritten=True)[spec_id]
        except RefusedError:
            # Unknown fields are preserved by leaving the manifests unchanged.
            return list(packed)
        own = pc.equal(entries["snapshot_id"], self.snapshot_id)
        entries = entries.filter(pc.or_(own, pc.not_equal(entries["status"], DELETED)))
        own = pc.equal(entries["snapshot_id"], self.snapshot_id)
        status = pc.if_else(own, entries["status"], pa.scalar(EXISTING, pa.int32()))
        entries = self._inheriting(metadata, _with(entries, "status", status))
        if not edit.manifests.isdisjoint(_paths(packed)):
            entries = self._deleting(entries, spec_id, edit, is_data=content == DATA)
        return self._write(metadata, spec_id, entries, content)

    def _deleting(self, entries: pa.Table, spec_id: int, edit: _Edit, *, is_data: bool) -> pa.Table:
        """Mark the removed files of merged manifests as deleted by this snapshot."""
        edited = pa.array(edit.manifests, pa.string())
        affected = pc.is_in(entries["manifest_path"].cast(pa.string()), value_set=edited)
        removed = pc.and_(affected, edit.removal.matches(entries, is_data=is_data))
        edit.counter.remove(entries.filter(removed), spec_id)
        status = pc.if_else(removed, pa.scalar(DELETED, pa.int32()), entries["status"])
        owner = pc.if_else(removed, pa.scalar(self.snapshot_id, pa.int64()), entries["snapshot_id"])
        return _with(_with(entries, "status", status), "snapshot_id", owner)

    def _inheriting(self, metadata: TableMetadata, entries: pa.Table) -> pa.Table:
        """Let this snapshot's own sequence number be inherited: a later attempt may have a different one."""
        own = pc.and_(
            pc.equal(entries["status"], ADDED),
            pc.equal(entries["sequence_number"], next_sequence_number(metadata)),
        )
        null = pa.scalar(None, pa.int64())
        entries = _with(
            entries, "sequence_number", pc.if_else(own, null, entries["sequence_number"])
        )
        added = pc.equal(entries["status"], ADDED)
        return _with(
            entries,
            "file_sequence_number",
            pc.if_else(added, null, entries["file_sequence_number"]),
        )


@dataclass(frozen=True, slots=True)
class _Edit:
    """The files to remove, the manifests that contain them, and what counts them when they are removed."""

    removal: Removal
    manifests: frozenset[str]
    counter: SummaryCounter


@dataclass(frozen=True, slots=True)
class _Edited:
    """Manifests without the removed files: these files, and the manifests that replace them with their entries."""

    paths: list[str]
    context: ManifestContext
    removed: pa.Table
    pieces: list[tuple[pa.Table, bytes]]


@dataclass(frozen=True, slots=True)
class _Added:
    """Entries of added files with one spec and content, and the manifests that contain them."""

    spec_id: int
    entries: pa.Table
    rows: list[dict[str, Any]]


def next_sequence_number(metadata: TableMetadata) -> int:
    """Return the sequence number of the next snapshot (always 0 in format version 1)."""
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number + 1


def _check_head(metadata: TableMetadata, snapshot: Snapshot, listed: pa.Table) -> None:
    """Refuse a head on which a commit cannot be built: newer than the table's last snapshot, or without file counts.

    Raises:
        CorruptFileError: the head is one of these.
    """
    if metadata.format_version == 1:
        return
    if (snapshot.sequence_number or 0) > metadata.last_sequence_number:
        raise CorruptFileError(
            f"snapshot {snapshot.snapshot_id} has sequence number {snapshot.sequence_number}, the table's "
            f"last is {metadata.last_sequence_number}"
        )
    if column := lacking_column(listed):
        raise CorruptFileError(
            f"{snapshot.manifest_list} contains a manifest without {column}, which format version "
            f"{metadata.format_version} requires"
        )


def pack_end(manifests: Sequence[dict[str, Any]], target: int) -> list[list[dict[str, Any]]]:
    """Pack adjacent manifests into bins of at most ``target`` bytes, starting from the end.

    The last bins are the full ones, so that merged manifests are not merged again. Source: Iceberg's
    BinPacking.ListPacker.packEnd with a lookback of 1.
    """
    bins: list[list[dict[str, Any]]] = []
    size = 0
    for row in reversed(manifests):
        length = row["manifest_length"]
        if bins and size + length <= target:
            bins[-1].insert(0, row)
            size += length
        else:
            bins.append([row])
            size = length
    return bins[::-1]


def _added_partitions(
    metadata: TableMetadata, added: list[EntryTable]
) -> frozenset[conflicts.Partition] | None:
    """Return the partitions to which files are added; None if the table is unpartitioned."""
    partitions: set[conflicts.Partition] = set()
    specs = metadata.specs()
    for part in added:
        if specs[part.spec_id].is_unpartitioned():
            return None
        ids = pa.repeat(pa.scalar(part.spec_id, pa.int32()), part.entries.num_rows)
        partitions.update(conflicts.partitions_of(part.entries.append_column("spec_id", ids)))
    return frozenset(partitions)


def _paths(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {row["manifest_path"] for row in rows}


def _texts(parts: list[EntryTable], column: str) -> frozenset[str]:
    texts = (text for part in parts for text in part.entries[column].to_pylist())
    return frozenset(text for text in texts if text is not None)


def _has_live(row: Mapping[str, Any]) -> bool:
    # Version 1 lists may lack the counts: a missing count means that there may be live files.
    counts = tuple(row[name] for name in _LIVE_COUNTS)
    return None in counts or sum(counts) > 0


def _with(entries: pa.Table, name: str, values: Any) -> pa.Table:
    index = entries.schema.get_field_index(name)
    return entries.set_column(index, entries.schema.field(index), values)


def _at_sequence(row: Mapping[str, Any], sequence_number: int) -> dict[str, Any]:
    """Return an added manifest's row for the attempt with this sequence number."""
    moved = dict(row)
    inherits = row["min_sequence_number"] == row["sequence_number"]
    moved["sequence_number"] = sequence_number
    if inherits:
        moved["min_sequence_number"] = sequence_number
    return moved


def _pieces(entries: pa.Table, target: int) -> list[pa.Table]:
    # The approximate compressed size of an entry with statistics of 15 columns is 200 bytes.
    rows = max(1000, target // 200)
    return [entries.slice(start, rows) for start in range(0, max(entries.num_rows, 1), rows)]
