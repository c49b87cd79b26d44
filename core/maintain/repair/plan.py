"""Decide what a repair changes; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyiceberg.table.update import TableRequirement, TableUpdate

from lake.core.base.errors import RefusedError
from lake.core.maintain.compaction.dangling_deletes import COLUMNS as DANGLING_COLUMNS
from lake.core.maintain.compaction.dangling_deletes import dangling_deletes
from lake.core.maintain.repair.duplicates import DuplicateFiles, find_duplicates
from lake.core.maintain.repair.facts import (
    DanglingDeletesFacts,
    LostRefsFacts,
    LostStatisticsFacts,
    Repair,
    RepairsFacts,
    TotalFacts,
    TotalsFacts,
)
from lake.core.maintain.repair.metadata_entries import (
    LostRef,
    LostStatistics,
    find_lost_refs,
    find_lost_statistics,
)
from lake.core.maintain.repair.missing_files import MissingFiles, find_missing_files
from lake.core.maintain.repair.names import (
    DANGLING_DELETES,
    DUPLICATE_FILES,
    MISSING_FILES,
    OF_TABLE,
    REFS,
    STATISTICS,
    TOTALS,
)
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import read_manifests
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import read_list, verify_manifest_list
from lake.core.table.snapshots.live_files import live_files
from lake.core.table.snapshots.summary import COUNTED_COLUMNS, counted_totals
from lake.core.transaction.commit.operations import (
    DeleteKey,
    DropDuplicates,
    Operation,
    OverwriteFiles,
    RecountTotals,
    RewriteFiles,
    SnapshotStep,
)
from lake.core.transaction.commit.preconditions import require_writable

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_SHOWN = 1000
_OF_FILES = (DUPLICATE_FILES, MISSING_FILES, DANGLING_DELETES)
_COLUMNS = (
    *DANGLING_COLUMNS,
    "file_format",
    "record_count",
    "file_size_in_bytes",
)


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What is repaired.

    Args:
        repairs: names of `REPAIRS`, in their order.
        branch: the branch whose snapshot is repaired.
    """

    repairs: Sequence[str]
    branch: str = ancestry.MAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair changes.

    Args:
        table: the table that was read.
        options: the options.
        head: the branch's head; None if it is empty.
        missing: the files that are gone.
        duplicates: the files with several entries.
        dangling: the delete files that apply to no data file.
        totals: the totals that are wrong, each with what the summary declares and what the manifests contain.
        refs: refs of snapshots that do not exist.
        kept_refs: such refs that are not dropped: main, and those of consumers.
        statistics: entries of statistics files that no reader can use.
    """

    table: Table
    options: RepairOptions
    head: Snapshot | None = None
    missing: MissingFiles = field(default_factory=MissingFiles)
    duplicates: DuplicateFiles = field(default_factory=DuplicateFiles)
    dangling: Sequence[DeleteKey] = ()
    totals: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    refs: Sequence[LostRef] = ()
    kept_refs: Sequence[str] = ()
    statistics: Sequence[LostStatistics] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to repair."""
        return not (self.operations or self.updates)

    @property
    def head_id(self) -> int | None:
        """The id of the branch's head."""
        return self.head.snapshot_id if self.head else None

    @property
    def operations(self) -> Sequence[Operation]:
        """The changes of files, in the order of their snapshots."""
        found: list[Operation] = []
        if self.head is None:
            return found
        base = self.head.snapshot_id
        if self.duplicates:
            found.append(DropDuplicates(paths=self.duplicates.paths, base_snapshot_id=base))
        deletes = sorted({*self.missing.deletes, *self.dangling})
        if self.missing.paths:
            found.append(
                OverwriteFiles(
                    added=(),
                    removed_paths=self.missing.paths,
                    base_snapshot_id=base,
                    removed_deletes=deletes,
                )
            )
        elif deletes:
            found.append(
                RewriteFiles(
                    added=(), removed_paths=(), base_snapshot_id=base, removed_deletes=deletes
                )
            )
        if self.totals:
            found.append(RecountTotals())
        return found

    @property
    def steps(self) -> Sequence[SnapshotStep]:
        """The snapshots that the repair commits."""
        return tuple(SnapshotStep(operation=operation) for operation in self.operations)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The changes of refs and statistics; those of one snapshot once."""
        changes: list[TableUpdate] = [item.update for item in self.refs]
        changed = {
            (item.is_partition, item.file.snapshot_id): item.update for item in self.statistics
        }
        return (*changes, *changed.values())

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        """What must hold of the refs."""
        return tuple(item.requirement for item in self.refs)

    def holds(self, metadata: TableMetadata) -> bool:
        """Whether the branch's head, refs and statistics are still those of the plan."""
        return (not needs_head(self.options) or self._has_head(metadata)) and all(
            item.is_in(metadata) for item in self._entries
        )

    def is_made(self, metadata: TableMetadata) -> bool:
        """Whether none of the refs and statistics that go is left."""
        return all(item.is_gone_from(metadata) for item in self._entries)

    @property
    def _entries(self) -> Sequence[LostRef | LostStatistics]:
        return (*self.refs, *self.statistics)

    def _has_head(self, metadata: TableMetadata) -> bool:
        return ancestry.head_id(metadata, self.options.branch) == self.head_id

    def facts(self) -> RepairsFacts:
        """Return what each repair changes for the outcome."""
        every: Sequence[Repair] = (
            self.duplicates.facts(),
            self.missing.facts(),
            DanglingDeletesFacts(
                delete_files=len(self.dangling),
                paths=sorted({key.path for key in self.dangling})[:_SHOWN],
            ),
            TotalsFacts(
                totals={
                    name: TotalFacts(declared=declared, counted=counted)
                    for name, (declared, counted) in self.totals.items()
                }
            ),
            LostRefsFacts(refs=[item.facts() for item in self.refs]),
            LostStatisticsFacts(files=[item.facts() for item in self.statistics]),
        )
        return RepairsFacts(repairs=[item for item in every if item.repair in self.options.repairs])


def needs_head(options: RepairOptions) -> bool:
    """Whether some of the repairs work on the branch's snapshot."""
    return any(name not in OF_TABLE for name in options.repairs)


def plan_repairs(table: Table, options: RepairOptions) -> RepairPlan:
    """Find the damage that the repairs mend.

    Raises:
        RefusedError: mending it would need a guess, or would bring back deleted rows.
        NotFoundError: there is no such branch.
        CorruptFileError: a manifest or a manifest list is damaged.
        StorageError: the storage fails; then nothing is known about its files.
    """
    require_writable(table, options.branch)
    plan = RepairPlan(table=table, options=options)
    if needs_head(options):
        plan = _with_files(plan)
    if REFS in options.repairs:
        refs, kept = find_lost_refs(table.metadata)
        if ancestry.MAIN in kept and not refs:
            raise RefusedError(
                f"main of {table.identifier} refers to a snapshot that does not exist, and main is never dropped",
                hint="register an earlier metadata file with `lake register`",
            )
        plan = replace(plan, refs=refs, kept_refs=kept)
    if STATISTICS in options.repairs:
        plan = replace(plan, statistics=find_lost_statistics(table))
    return plan


def _with_files(plan: RepairPlan) -> RepairPlan:
    table, options = plan.table, plan.options
    head = ancestry.branch_head(table.metadata, options.branch)
    if head is None:
        return plan
    plan = replace(plan, head=head)
    if TOTALS in options.repairs:
        plan = replace(plan, totals=_wrong_totals(table, head))
    if not any(name in _OF_FILES for name in options.repairs):
        return plan
    live = live_files(table, head, columns=_COLUMNS)
    if DUPLICATE_FILES in options.repairs:
        plan = replace(plan, duplicates=find_duplicates(live))
    if MISSING_FILES in options.repairs:
        plan = replace(plan, missing=find_missing_files(live, options.branch))
    if DANGLING_DELETES in options.repairs:
        plan = replace(plan, dangling=dangling_deletes(live))
    return plan


def _wrong_totals(table: Table, head: Snapshot) -> Mapping[str, tuple[str, str]]:
    """Return the totals that the head's summary declares and its manifests contradict."""
    manifests = read_list(table.storage, table.metadata, head)
    verify_manifest_list(table.storage, table.metadata, head, manifests)
    live = read_manifests(
        table.storage, manifests, table.metadata, columns=COUNTED_COLUMNS, live_only=True
    )
    summary = properties_of(head)
    return {
        name: (summary[name], counted)
        for name, counted in counted_totals(live).items()
        if name in summary and summary[name] != counted
    }
