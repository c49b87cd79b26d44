"""What a run committed, which groups of files it lost to other writers, how often, and to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base.units import counted
from lake.core.maintain.compaction.facts import CompactionResult, LostGroup
from lake.core.table.flink.commits import writer_with_job
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.maintain.compaction.grouping import FileGroup
    from lake.core.maintain.compaction.rewrite import Rewritten
    from lake.core.transaction.commit.commit import Committed

_UNKNOWN = "another writer"
_HISTORY = "a rollback or an expiry of snapshots"
_SHOWN = 3


@dataclass(slots=True)
class Tally:
    """What was committed in all rounds."""

    totals: CompactionResult = field(default_factory=CompactionResult)
    groups: int = 0
    snapshot_ids: list[int] = field(default_factory=list)
    operation_id: str | None = None

    def add(self, groups: Sequence[Rewritten], committed: Committed, operation_id: str) -> None:
        """Add the groups of a successful commit."""
        self.snapshot_ids.append(committed.snapshot_id)
        self.operation_id = self.operation_id or operation_id
        self.groups += len(groups)
        totals = self.totals
        totals.removed_delete_files += _removed_deletes(committed)
        for item in groups:
            totals.rewritten_files += item.group.files.num_rows
            totals.rewritten_bytes += item.group.bytes
            totals.added_files += len(item.files)
            totals.added_bytes += sum(file.size_bytes for file in item.files)
            totals.rows_in += item.rows + item.dropped
            totals.rows_dropped_by_deletes += item.dropped
            totals.rows_out += sum(file.record_count for file in item.files)
            totals.copied_row_groups += item.copied
            if item.decoded:
                before = Counter(totals.decoded_row_groups or {})
                totals.decoded_row_groups = dict(before + item.decoded)


def _removed_deletes(committed: Committed) -> int:
    """Return the number of delete files that a commit removed, from its summary."""
    snapshot = committed.table.metadata.snapshot_by_id(committed.snapshot_id)
    counters = properties_of(snapshot)
    return int(counters.get("removed-delete-files", "0"))


@dataclass(slots=True)
class _Lost:
    paths: set[str]
    partition: str | None
    times: int = 0
    writers: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Losses:
    """The losses of a run. A group that was planned again is the same one if it contains one of the files."""

    _found: list[_Lost] = field(default_factory=list)

    def add(self, groups: Sequence[tuple[FileGroup, str | None]], writers: Collection[str]) -> None:
        """Note that groups were lost.

        Args:
            groups: the groups with their partitions; None for several.
            writers: the writers that may be the reason.
        """
        for group, partition in groups:
            paths = set(group.paths)
            lost = next((item for item in self._found if item.paths & paths), None)
            if lost is None:
                lost = _Lost(paths, partition)
                self._found.append(lost)
            lost.paths |= paths
            lost.times += 1
            lost.writers.update(writers)

    def of(self, groups: Sequence[FileGroup]) -> list[LostGroup]:
        """Return the losses of groups, those that were lost most often first."""
        found = []
        for group in groups:
            paths = set(group.paths)
            lost = next((item for item in self._found if item.paths & paths), None)
            if lost is not None:
                found.append(
                    LostGroup(
                        partition=lost.partition,
                        files=len(paths),
                        times=lost.times,
                        lost_to=dict(lost.writers.most_common()),
                    )
                )
        return sorted(found, key=lambda item: -item.times)


def others_since(
    metadata: TableMetadata,
    branch: str,
    base_id: int | None,
    *,
    own: Collection[int],
    files_changed: bool,
) -> list[str]:
    """Return the names of the writers that committed to a branch since a snapshot.

    Args:
        metadata: the table's metadata.
        branch: the branch.
        base_id: the snapshot.
        own: the snapshots of this run.
        files_changed: only commits that may have changed files: an append does not.
    """
    commits, complete = ancestry.since(metadata, ancestry.head_id(metadata, branch), base_id)
    if not complete:
        return [_HISTORY]
    found = {
        writer_with_job(item): None
        for item in commits
        if item.snapshot_id not in own
        and not (files_changed and ancestry.operation_of(item) == "append")
    }
    return list(found) or [_UNKNOWN]


def described(lost: Sequence[LostGroup]) -> str:
    """Return the warning about groups that are left for the next run."""
    shown = []
    for item in lost[:_SHOWN]:
        writers = " and ".join(
            f"{name}, {counted(times, 'time')}"
            for name, times in list(item.lost_to.items())[:_SHOWN]
        )
        partition = f"{item.partition} was " if item.partition else ""
        shown.append(f"{partition}lost to {writers}")
    more = len(lost) - len(shown)
    text = "; ".join(shown) + (f"; and {more:,} more" if more else "")
    return f"groups of files that are left for the next run: {len(lost):,}; {text}"
