"""Refs of snapshots that do not exist, and statistics that cannot be used: entries of the table's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.update import (
    AssertRefSnapshotId,
    SetPartitionStatisticsUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from lake.core.maintain.repair.absence import gone_files
from lake.core.maintain.repair.facts import LostRefFacts, StatisticsFileFacts
from lake.core.table.metadata.snapshot_updates import (
    RemovePartitionStatistics,
    RemoveSnapshotRef,
    RemoveStatistics,
)
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile

    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRef:
    """A branch or tag whose snapshot does not exist."""

    name: str
    kind: str
    snapshot_id: int

    def facts(self) -> LostRefFacts:
        """Return the ref for the outcome."""
        return LostRefFacts(name=self.name, type=self.kind, snapshot_id=str(self.snapshot_id))

    @property
    def requirement(self) -> TableRequirement:
        """What must hold when it is dropped."""
        return AssertRefSnapshotId(ref=self.name, snapshot_id=self.snapshot_id)

    @property
    def update(self) -> TableUpdate:
        """The change that drops it."""
        return RemoveSnapshotRef(ref_name=self.name)

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether metadata still contains the ref as it was planned."""
        ref = metadata.refs.get(self.name)
        return ref is not None and ref.snapshot_id == self.snapshot_id

    def is_gone_from(self, metadata: TableMetadata) -> bool:
        """Whether metadata contains no ref of this name."""
        return self.name not in metadata.refs


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStatistics:
    """A statistics file that does not exist, has another size, or belongs to a snapshot that does not exist.

    Args:
        file: its entry.
        reason: what is wrong with it.
        expected: the paths of all entries of the same snapshot and kind.
        sound: another one of these, which stays; None if there is none.
    """

    file: StatisticsFile | PartitionStatisticsFile
    reason: str
    expected: frozenset[str]
    sound: StatisticsFile | PartitionStatisticsFile | None = None

    @property
    def is_partition(self) -> bool:
        """Whether it contains statistics of partitions."""
        return not hasattr(self.file, "blob_metadata")

    def facts(self) -> StatisticsFileFacts:
        """Return the entry for the outcome."""
        return StatisticsFileFacts(
            path=self.file.statistics_path,
            snapshot_id=str(self.file.snapshot_id),
            reason=self.reason,
        )

    @property
    def update(self) -> TableUpdate:
        """The change that removes it: a snapshot has one entry of each kind, which another one replaces."""
        number = self.file.snapshot_id
        if self.is_partition:
            if self.sound is not None:
                return SetPartitionStatisticsUpdate(partition_statistics=self.sound)
            return RemovePartitionStatistics(snapshot_id=number, expected=self.expected)
        if self.sound is not None:
            return SetStatisticsUpdate(statistics=self.sound)
        return RemoveStatistics(snapshot_id=number, expected=self.expected)

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether metadata still contains the entry as it was planned."""
        return self.file in (*metadata.statistics, *metadata.partition_statistics)

    def is_gone_from(self, metadata: TableMetadata) -> bool:
        """Whether the entry's snapshot has no entry of this kind but the sound one."""
        files = metadata.partition_statistics if self.is_partition else metadata.statistics
        return all(
            item == self.sound for item in files if item.snapshot_id == self.file.snapshot_id
        )


def find_lost_refs(metadata: TableMetadata) -> tuple[list[LostRef], list[str]]:
    """Return the refs of snapshots that do not exist, and the names of those that must not be dropped here."""
    known = ancestry.snapshots_by_id(metadata)
    lost, kept = list[LostRef](), list[str]()
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id in known:
            continue
        if name == ancestry.MAIN or ancestry.is_consumer(name):  # check: ref-of-consumer
            kept.append(name)
        else:
            kind = str(ref.snapshot_ref_type.value)
            lost.append(LostRef(name=name, kind=kind, snapshot_id=ref.snapshot_id))
    return lost, kept


def find_lost_statistics(table: Table) -> list[LostStatistics]:
    """Return the statistics that no reader can use.

    Raises:
        StorageError: the storage does not answer, or refuses access.
    """
    metadata = table.metadata
    lost: list[LostStatistics] = []
    for files in (metadata.statistics, metadata.partition_statistics):
        lost += _lost_of(table, files)
    return lost


def _lost_of(
    table: Table, files: Sequence[StatisticsFile | PartitionStatisticsFile]
) -> list[LostStatistics]:
    known = ancestry.snapshots_by_id(table.metadata)
    gone = gone_files(table.storage, [item.statistics_path for item in files])
    stored = table.storage.look_up(item.statistics_path for item in files)
    reasons: list[str | None] = []
    for item in files:
        found = stored[item.statistics_path]
        if item.snapshot_id not in known:
            reasons.append("its snapshot does not exist")
        elif item.statistics_path in gone:
            reasons.append("it does not exist")
        elif found is not None and found.length != item.file_size_in_bytes:
            reasons.append(
                f"it has {found.length} bytes, the metadata declares {item.file_size_in_bytes}"
            )
        else:
            reasons.append(None)
    sound = {
        item.snapshot_id: item
        for item, reason in zip(files, reasons, strict=True)
        if reason is None
    }
    return [
        LostStatistics(
            file=item,
            reason=reason,
            expected=frozenset(
                one.statistics_path for one in files if one.snapshot_id == item.snapshot_id
            ),
            sound=sound.get(item.snapshot_id),
        )
        for item, reason in zip(files, reasons, strict=True)
        if reason is not None
    ]
