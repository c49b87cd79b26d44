"""Plan a change log: the files that each snapshot added and removed, and those whose deletes changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.keys.key_pruning import KeyPruner
from lake.core.read.changelog.file_diff import (
    Entries,
    Exchange,
    count,
    exchange,
    identities,
    joined,
    live,
    lived_before,
)
from lake.core.read.changelog.manifest_diff import Commit, EntryReader, Manifests, Rows, commits_of
from lake.core.read.changelog.row_diff import CHANGE_COLUMNS
from lake.core.read.scan.facts import ScanFacts
from lake.core.read.scan.incremental import Increment, SnapshotRange, plan_range
from lake.core.read.scan.plan import ScanOptions, ScanPlan, bound, file_columns, planned
from lake.core.spec.types.arrow_schema import project_schema
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import live_manifests
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.delete_index import (
    DATA_BOUNDS,
    DATA_COLUMNS,
    DELETE_COLUMNS,
    DeleteIndex,
)
from lake.core.table.snapshots.delete_scopes import all_schemas
from lake.core.table.snapshots.live_files import LiveFiles
from lake.core.table.snapshots.pruning import prune_files

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.read.scan.scan_keys import PruningFacts, ScanKeys

REPLACE = "replace"


@dataclass(frozen=True)
class SideFiles(LiveFiles):
    """Some of a snapshot's data files, with an index of its delete files."""

    index: DeleteIndex = field(kw_only=True)

    @cached_property
    def delete_index(self) -> DeleteIndex:
        """The index of the snapshot's live delete files."""
        return self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChanges:
    """The changes of one snapshot.

    Args:
        ordinal: its index among the snapshots of the change log, from 0.
        snapshot_id: the snapshot.
        inserts: added data files, with the deletes that apply to them in the snapshot.
        deletes: removed data files, with the deletes that applied to them in its parent.
        touched: retained data files whose deletes changed, with the deletes of the snapshot.
        before: the same files with the deletes of the parent.
        revives: whether a delete file of a touched file was removed, which may restore rows.
    """

    ordinal: int
    snapshot_id: int
    inserts: ScanPlan
    deletes: ScanPlan
    touched: ScanPlan
    before: LiveFiles
    revives: bool

    @property
    def parts(self) -> tuple[ScanPlan, ScanPlan, ScanPlan]:
        """The plans of all files that are read."""
        return self.inserts, self.deletes, self.touched

    @property
    def mixed(self) -> bool:
        """Whether rows were both removed and added, so that they must be compared."""
        removed = self.deletes.found.count + self.touched.found.count
        added = self.inserts.found.count + (self.touched.found.count if self.revives else 0)
        return bool(removed and added)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPlan:
    """The plan of a change log.

    Args:
        table: the table to read.
        options: the options of the scan.
        key: key columns that identify updates.
        snapshot: the last snapshot, None for an empty table.
        steps: the changes of each snapshot, oldest first, without snapshots that changed no files.
        snapshots: the number of snapshots, including those.
        projection: the columns to return.
        reading: these columns and the key's.
        truncated: whether the state before the first snapshot is not known.
        keys: the keys that changed rows must have; None for all rows.
        pruning: what the keys exclude.
    """

    table: Table
    options: ScanOptions
    key: tuple[str, ...]
    snapshot: Snapshot | None
    steps: Sequence[SnapshotChanges]
    snapshots: int
    projection: Schema
    reading: Schema
    truncated: bool
    keys: ScanKeys | None = None
    pruning: PruningFacts | None = None

    @property
    def parts(self) -> Iterator[ScanPlan]:
        """The plans of all files that are read."""
        return (part for step in self.steps for part in step.parts)

    @property
    def bytes(self) -> int:
        """The size of the files in bytes; a file that is read twice counts twice."""
        return sum(part.bytes for part in self.parts)

    @property
    def records(self) -> int:
        """The number of their rows by metadata, including deleted ones."""
        return sum(part.records for part in self.parts)

    def facts(self) -> ScanFacts:
        """Return the plan's counts for the output."""
        parts = list(self.parts)
        return ScanFacts(
            snapshots=self.snapshots,
            files=sum(part.found.count for part in parts),
            delete_files=self._delete_files(),
            records=self.records,
            bytes=self.bytes,
            splits=sum(len(part.splits) for part in parts),
            skipped_files=sum(part.found.skipped_files for part in parts),
            pruning=self.pruning,
        )

    def _delete_files(self) -> int:
        """Return the number of delete files that are live in the states that are read."""
        found = [part.found for part in self.parts] + [step.before for step in self.steps]
        indexes = {id(files.delete_index): files.delete_index for files in found if files.count}
        names = [identities(index.by_spec) for index in indexes.values()]
        chunks = [chunk for item in names for chunk in item.chunks]
        return len(pc.unique(pa.chunked_array(chunks, pa.string())))


def plan_changelog(
    table: Table, options: ScanOptions, key: Sequence[str] = (), keys: ScanKeys | None = None
) -> ChangelogPlan:
    """Find the changes of the snapshots in a range; see `plan_changes`.

    Raises:
        InvalidRequestError: the key or the name of a column is not valid.
        NotFoundError: a snapshot, ref or column does not exist.
        BadInputError: the filter or the range is not valid, or a required snapshot before it has expired.
        CorruptFileError: a manifest does not match its manifest list.
    """
    selected = plan_range(
        table.metadata,
        start=options.from_snapshot,
        inclusive=options.inclusive,
        end=options.to_snapshot,
        branch=options.branch,
    )
    return plan_changes(table, options, selected, key, keys=keys)


def plan_changes(
    table: Table,
    options: ScanOptions,
    selected: SnapshotRange,
    key: Sequence[str] = (),
    *,
    schema: Schema | None = None,
    keys: ScanKeys | None = None,
) -> ChangelogPlan:
    """Find the changes of some snapshots; see `plan_changelog`.

    Args:
        table: the table.
        options: the options; those that choose snapshots only show whether the start is known.
        selected: the snapshots.
        key: key columns that identify updates.
        schema: the schema to read with; None for the table's current one.
        keys: the keys of the rows that are wanted; None for all rows.
    """
    schema = table.schema if schema is None else schema
    condition, projection = bound(schema, options)
    reading, names = _with_key(schema, projection, options, key)
    shown = [
        item for item in reversed(selected.snapshots) if ancestry.operation_of(item) != REPLACE
    ]
    commits = commits_of(table, shown)
    pruner = None if keys is None else _StepPruner(table, keys, schema)
    listed = commits[0].data.listed if commits else MANIFEST_SCHEMA.empty_table()
    steps = _Planner(table, options, condition, reading, schema, pruner, listed).steps(commits)
    return ChangelogPlan(
        table=table,
        options=options,
        key=names,
        snapshot=selected.end,
        steps=steps,
        snapshots=len(shown),
        projection=Schema(*projection.fields, *CHANGE_COLUMNS),
        reading=reading,
        truncated=selected.truncated
        or (options.from_snapshot is None and any(item.is_orphan for item in commits)),
        keys=keys,
        pruning=None if pruner is None else pruner.facts(),
    )


def _with_key(
    schema: Schema, projection: Schema, options: ScanOptions, key: Sequence[str]
) -> tuple[Schema, tuple[str, ...]]:
    """Return the columns to read and the key's among them."""
    taken = {item.name for item in CHANGE_COLUMNS} & {item.name for item in projection.fields}
    if taken:
        raise InvalidRequestError(
            f"the table's column {sorted(taken)[0]} has the name of a column of the change log",
            hint=f"select the other columns with {Option.SELECT}",
        )
    fields = {item.field_id: item for item in projection.fields}
    names = []
    for name in key:
        (wanted,) = project_schema(schema, [name], case_sensitive=not options.ignore_case).fields
        if fields.setdefault(wanted.field_id, wanted) != wanted:
            raise InvalidRequestError(
                f"{Option.KEY} {name} requires the complete column in {Option.SELECT}"
            )
        names.append(wanted.name)
    return Schema(*fields.values()), tuple(names)


class _StepPruner:
    """Chooses the files of commits by keys."""

    def __init__(self, table: Table, keys: ScanKeys, schema: Schema) -> None:
        self._specs = table.metadata.specs()
        self._keys = keys
        self._schema = schema
        self._total = keys.pruner(schema)

    def facts(self) -> PruningFacts:
        """Return the facts of all commits."""
        return self._keys.facts(self._total)

    def chosen(self, parts: Sequence[Entries], *, together: bool) -> list[Entries]:
        """Return the files of a commit that may contain a key.

        Args:
            parts: the files.
            together: whether rows of all parts are compared. Then all files are needed if one is, because a row
                that the commit only moved may be in a file without keys before or after it. If rows are tested,
                both rows are in files that are kept, or neither is wanted.
        """
        pruner = self._keys.pruner(self._schema)
        found = self._pruned(parts, pruner)
        if together and not self._keys.matching and any(count(part) for part in found):
            pruner = KeyPruner(None, self._schema)
            found = self._pruned(parts, pruner)
        self._total.add(pruner)
        return found

    def _pruned(self, parts: Sequence[Entries], pruner: KeyPruner) -> list[Entries]:
        return [
            {
                spec_id: pruner.prune_files(entries, self._specs[spec_id])
                for spec_id, entries in part.items()
            }
            for part in parts
        ]


class _Planner:
    """Plans commits one after another; reads each manifest once."""

    def __init__(
        self,
        table: Table,
        options: ScanOptions,
        condition: BooleanExpression | None,
        reading: Schema,
        schema: Schema,
        pruner: _StepPruner | None,
        listed: pa.Table,
    ) -> None:
        self._pruner = pruner
        self._table = table
        self._schema = schema
        self._options = options
        self._condition = condition
        self._reading = reading
        columns = {*file_columns(condition), *DATA_COLUMNS, *DATA_BOUNDS}
        self._listed = listed
        self._data = EntryReader(table, listed, sorted(columns))
        self._deletes = EntryReader(table, listed, DELETE_COLUMNS)
        self._sides: dict[bytes, tuple[pa.Table, DeleteIndex]] = {}

    def steps(self, commits: Sequence[Commit]) -> list[SnapshotChanges]:
        """Plan commits, oldest first; those that changed no files are omitted."""
        kinds = [item.deletes for item in commits]
        self._deletes.read(part for item in kinds for part in (item.after, item.removed))
        changed = [self._changed_deletes(item) for item in kinds]
        self._data.read(
            part
            for item, deletes in zip(commits, changed, strict=True)
            # Retained files are needed only if the deletes changed.
            for part in (
                item.data.new if deletes.is_empty else item.data.after,
                item.data.removed,
            )
        )
        steps = [
            self._step(ordinal, item, deletes)
            for ordinal, (item, deletes) in enumerate(zip(commits, changed, strict=True))
        ]
        return [step for step in steps if any(part.found.count for part in step.parts)]

    def _changed_deletes(self, manifests: Manifests) -> Exchange:
        removed_entries, new = (
            self._deletes.of(part) for part in (manifests.removed, manifests.new)
        )
        return exchange(live(removed_entries), live(new))

    def _changed_files(self, manifests: Manifests) -> Exchange:
        new = self._data.of(manifests.new)
        if manifests.before is None:
            return exchange(lived_before(new, manifests.snapshot_id), live(new))
        return exchange(live(self._data.of(manifests.removed)), live(new))

    def _step(self, ordinal: int, commit: Commit, deletes: Exchange) -> SnapshotChanges:
        files = self._changed_files(commit.data)
        old, new = commit.deletes_before, commit.deletes.after
        kept: Entries = {}
        if not deletes.is_empty:
            shared = live(self._data.of(commit.data.shared))
            changed = [self._index_of(part) for part in (deletes.added, deletes.removed)]
            kept = _touched(joined(files.kept, shared), changed)
        added, removed = files.added, files.removed
        if self._pruner is not None:
            revived = count(kept) if count(deletes.removed) else 0
            mixed = bool((count(removed) + count(kept)) and (count(added) + revived))
            parts = (added, removed, kept)
            added, removed, kept = self._pruner.chosen(parts, together=mixed)
        touched = self._part(kept, new)
        return SnapshotChanges(
            ordinal=ordinal,
            snapshot_id=commit.snapshot.snapshot_id,
            inserts=self._part(added, new),
            deletes=self._part(removed, old),
            touched=touched,
            before=self._side(touched.found.by_spec, old),
            revives=bool(count(deletes.removed)),
        )

    def _part(self, entries: Entries, delete_manifests: Rows) -> ScanPlan:
        """Plan to read data files with the deletes of some manifests."""
        found = self._side(entries, delete_manifests)
        no_increment = Increment(None, (), ())
        return planned(
            self._table, self._options, no_increment, found, self._condition, self._reading
        )

    def _side(self, entries: Entries, delete_manifests: Rows) -> SideFiles:
        kept = {spec_id: self._pruned(spec_id, some) for spec_id, some in entries.items()}
        manifests, index = self._deletes_of(delete_manifests)
        return SideFiles(
            table=self._table,
            by_spec=kept,
            delete_manifests=manifests,
            schema=self._schema,
            skipped_files=count(entries) - count(kept),
            index=index,
        )

    def _pruned(self, spec_id: int, entries: pa.Table) -> pa.Table:
        if self._condition is None:
            return entries
        spec = self._table.metadata.specs()[spec_id]
        return entries.filter(prune_files(entries, spec, self._schema, self._condition))

    def _deletes_of(self, delete_manifests: Rows) -> tuple[pa.Table, DeleteIndex]:
        """Return a snapshot's live delete manifests, and the index of their live delete files."""
        name = delete_manifests.tobytes()
        if name not in self._sides:
            manifests = live_manifests(self._listed.take(pa.array(delete_manifests)))
            index = self._index_of(live(self._deletes.of(delete_manifests)))
            self._sides[name] = manifests, index
        return self._sides[name]

    def _index_of(self, entries: Entries) -> DeleteIndex:
        metadata = self._table.metadata
        return DeleteIndex(entries, metadata.specs(), all_schemas(metadata))


def _touched(entries: Entries, changed: Sequence[DeleteIndex]) -> Entries:
    """Return the data files to which some of the delete files may apply."""
    found = {}
    for spec_id, some in entries.items():
        masks = [index.pair(spec_id, some).touched() for index in changed if index.count]
        found[spec_id] = some.filter(pa.array(np.any(masks, axis=0)))
    return found
