"""What shows that a change is in a branch already: the id of its run, or the epoch of its stream or query.

A commit asks its guard on every attempt, for the same head that the swap requires, so of two processes that make one
change only one succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lake.core.base.facts import EarlierRunFacts
from lake.core.base.units import iso_time
from lake.core.table.flink.commits import (
    CHECKPOINT_ID,
    JOB_ID,
    LAKE_OPERATOR_ID,
    OPERATOR_ID,
    job_id_of,
)
from lake.core.table.snapshots.branch_notes import changed_notes
from lake.core.table.snapshots.run_ids import CARRIED_MS, RUN_ID, RUN_NOTES, find_on_branch, has_run
from lake.core.table.snapshots.streams import (
    QUERY_NOTES,
    STREAM,
    STREAM_NOTES,
    QueryEpoch,
    StreamEpoch,
    contains_query_epoch,
    find_epoch,
    find_query_epoch,
    newest_epoch,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table


class Guard(Protocol):
    """What shows that a change is in a branch."""

    @property
    def summary(self) -> Mapping[str, str]:
        """What a snapshot's summary contains for it."""

    def find(self, metadata: TableMetadata, branch: str) -> Snapshot | None:
        """Return the retained snapshot of a branch that shows the change; None if there is none."""

    def is_held(self, table: Table, branch: str, now_ms: int | None = None) -> bool:
        """Whether the change is in a branch's history, even if its snapshot expired.

        Args:
            table: the table.
            branch: the branch.
            now_ms: the time in ms since 1970, by which old notes are passed over; None to use all of them.
        """


@dataclass(frozen=True, slots=True)
class RunGuard:
    """A run that is loaded once."""

    run_id: str

    @property
    def summary(self) -> Mapping[str, str]:
        """What a snapshot's summary contains for it."""
        return {RUN_ID: self.run_id}

    def find(self, metadata: TableMetadata, branch: str) -> Snapshot | None:
        """Return the newest snapshot of the run; None if none is retained."""
        return find_on_branch(metadata, branch, self.summary)

    def is_held(self, table: Table, branch: str, now_ms: int | None = None) -> bool:
        """Whether a branch contains the run; see `Guard.is_held`."""
        since_ms = None if now_ms is None else now_ms - CARRIED_MS
        return has_run(table, branch, self.run_id, since_ms)


@dataclass(frozen=True, slots=True)
class StreamGuard:
    """An epoch of a stream: it is in a branch if that or a later epoch is."""

    epoch: StreamEpoch

    @property
    def summary(self) -> Mapping[str, str]:
        """What a snapshot's summary contains for it: as a Flink sink's, and the offsets."""
        return {
            JOB_ID: job_id_of(self.epoch.stream),
            OPERATOR_ID: LAKE_OPERATOR_ID,
            CHECKPOINT_ID: str(self.epoch.number),
            STREAM: self.epoch.text,
        }

    def find(self, metadata: TableMetadata, branch: str) -> Snapshot | None:
        """Return the snapshot of the stream's newest epoch, if that is not an earlier one."""
        found = find_epoch(metadata, branch, self.epoch.stream)
        return found[0] if found and found[1].number >= self.epoch.number else None

    def is_held(self, table: Table, branch: str, now_ms: int | None = None) -> bool:  # noqa: ARG002
        """Whether a branch contains the epoch; see `Guard.is_held`. Notes of streams do not grow old."""
        newest = newest_epoch(table, branch, self.epoch.stream)
        return newest is not None and newest.number >= self.epoch.number  # check: epoch-committed


@dataclass(frozen=True, slots=True)
class QueryGuard:
    """An epoch of a streaming query of Spark: it is in a branch if that or a later epoch is.

    One of a query that is known by a name only is refused if the branch has a later one, or one with other rows.
    """

    epoch: QueryEpoch

    @property
    def summary(self) -> Mapping[str, str]:
        """What a snapshot's summary contains for it."""
        return self.epoch.summary

    def find(self, metadata: TableMetadata, branch: str) -> Snapshot | None:
        """Return the snapshot of the query's newest epoch, if that is not an earlier one."""
        found = find_query_epoch(metadata, branch, self.epoch.query)
        if found is None or found[1].number < self.epoch.number:
            return None
        return found[0] if self.epoch.rows is None or found[1] == self.epoch else None

    def is_held(self, table: Table, branch: str, now_ms: int | None = None) -> bool:  # noqa: ARG002
        """Whether a branch contains the epoch; see `Guard.is_held`. Notes of queries do not grow old.

        Raises:
            RefusedError: see `contains_query_epoch`.
        """
        return contains_query_epoch(table, branch, self.epoch)


def earlier_run(
    guard: Guard | None, table: Table, branch: str, run_id: str | None
) -> EarlierRunFacts:
    """Return for the outcome the run that a guard finds, which has committed what another one was to commit."""
    found = guard.find(table.metadata, branch) if guard else None
    return EarlierRunFacts(
        run_id=run_id,
        snapshot_id=str(found.snapshot_id) if found else None,
        committed_at=iso_time(found.timestamp_ms) if found else None,
    )


def noted_marks(
    metadata: TableMetadata, branch: str, now_ms: int, added: Sequence[Snapshot]
) -> dict[str, str]:
    """Return the properties to set in a commit, so that they note what is in a branch's history."""
    found: dict[str, str] = {}
    for kind in (RUN_NOTES, STREAM_NOTES, QUERY_NOTES):
        found |= changed_notes(kind, metadata, branch, now_ms, added=added)
    return found
