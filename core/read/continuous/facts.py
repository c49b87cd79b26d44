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
    position: Position | None = None
    head: str | None = None
    snapshots: int = 0
    files: int = 0
    splits: int = 0
    bytes: int = 0
    records: int = 0
    skipped_snapshots: int = 0


@dataclass(slots=True, kw_only=True)
class FollowFacts(FoundFacts):
    """What one run of a follow discovered."""

    pruning: PruningFacts | None = omitted()


@dataclass(slots=True, kw_only=True)
class NextFacts(FoundFacts):
    """What the next run of a follow would discover."""

    gap: Gap | None = None
    pruning: PruningFacts | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFacts(Facts):
    """Where a follow is."""

    position: Position | None = None
    lag: Lag | None = None
    pending_splits: int = 0
    pending_rows: int = 0
    watermark_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class FollowResult(Facts):
    """What one run of a follow handed over."""

    epochs: int = 0
    rows: int = 0
    files: int = 0
    bytes_written: int = 0
    standing: StandingFacts | None = inlined()
    late_splits: int = 0
    gaps: list[Gap] = field(default_factory=list)
    skipped_snapshots: int = 0
    discarded_discoveries: int = 0
    planning_failures: int = 0
    stopped_by: str | None = None
    keys: KeyCounts | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusResult(Facts):
    """What all runs of a follow handed over; `gap` is the one at which the next run would end."""

    epochs: int = 0
    rows: int = 0
    bytes_written: int = 0
    standing: StandingFacts | None = inlined()
    gap: Gap | None = None
    gaps_total: int = 0
    skipped_snapshots: int = 0
    planning_failures: int = 0
    generation: int = 0
    updated_ms: int = 0
