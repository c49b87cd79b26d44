"""What a follow found and handed over, as its JSON document has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base.facts import Facts, inlined, omitted

if TYPE_CHECKING:
    from lake.core.read.continuous.position import Gap, Lag, Position
    from lake.core.read.exports.facts import KeyCounts
    from lake.core.read.scan.scan_keys import PruningFacts


@dataclass(slots=True, kw_only=True)
class FoundFacts(Facts):
    """What was discovered since a position."""

    strategy: str | None = None
    """Where a new state starts; null with a saved position."""
    position: Position | None = None
    """The last snapshot that was discovered."""
    head: str | None = None
    """The branch's head; null without a snapshot."""
    snapshots: int = 0
    """Snapshots that are read."""
    files: int = 0
    """Their data files."""
    splits: int = 0
    """The splits of these files."""
    bytes: int = 0
    """Their bytes."""
    records: int = 0
    """Their rows."""
    skipped_snapshots: int = 0
    """Snapshots that are not appends and are not read."""


@dataclass(slots=True, kw_only=True)
class FollowFacts(FoundFacts):
    """What one run of a follow discovered."""

    pruning: PruningFacts | None = omitted()
    """With `prune_with=`, what the keys exclude."""


@dataclass(slots=True, kw_only=True)
class NextFacts(FoundFacts):
    """What the next run of a follow would discover."""

    gap: Gap | None = None
    """The gap at which the next run would end; null without one."""
    pruning: PruningFacts | None = omitted()
    """With `prune_with=`, what the keys exclude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFacts(Facts):
    """Where a follow is."""

    position: Position | None = None
    """The last snapshot that was discovered."""
    lag: Lag | None = None
    """What is between this position and the head."""
    pending_splits: int = 0
    """Splits that were discovered and not handed over."""
    pending_rows: int = 0
    """Rows of these."""
    watermark_ms: int | None = None
    """The time of the event-time watermark; null without one."""


@dataclass(slots=True, kw_only=True)
class FollowResult(Facts):
    """What one run of a follow handed over."""

    epochs: int = 0
    """Epochs of this run."""
    rows: int = 0
    """Rows of this run."""
    files: int = 0
    """Files that it wrote."""
    bytes_written: int = 0
    """Bytes that it wrote."""
    standing: StandingFacts | None = inlined()
    late_splits: int = 0
    """Splits whose rows came after the watermark."""
    gaps: list[Gap] = field(default_factory=list)
    """Parts of the history that expired before they were read."""
    skipped_snapshots: int = 0
    """Snapshots that are not appends and were not read."""
    discarded_discoveries: int = 0
    """Discoveries that were discarded because the table changed meanwhile."""
    planning_failures: int = 0
    """Attempts to plan that failed and were repeated."""
    stopped_by: str | None = None
    """What ended the run: `once`, `until`, `max-epochs`, `signal`, `pipe` or `schema-change`."""
    keys: KeyCounts | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusResult(Facts):
    """What all runs of a follow handed over."""

    epochs: int = 0
    """Epochs of all runs."""
    rows: int = 0
    """Rows of all runs."""
    bytes_written: int = 0
    """Bytes of all runs."""
    standing: StandingFacts | None = inlined()
    gap: Gap | None = None
    """The gap at which the next run would end; null without one."""
    gaps_total: int = 0
    """The number of gaps."""
    skipped_snapshots: int = 0
    """Snapshots that are not appends and were not read."""
    planning_failures: int = 0
    """Attempts to plan that failed and were repeated."""
    generation: int = 0
    """A number that grows when the table is read again."""
    updated_ms: int = 0
    """The time of the last change of the state."""
