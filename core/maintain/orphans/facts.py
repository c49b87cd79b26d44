"""What a cleaning plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import Facts, omitted
from lake.core.maintain.orphans.options import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashFacts(Facts):
    """A run whose files are still away."""

    run_id: str
    created_at: str | None
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFilesFacts(Facts):
    """The files that are kept for one reason; the bytes of files that the table references are not known."""

    reason: str
    files: int
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFacts(Facts):
    """The files below a table's folders; see `CleaningPlan`. A list has the runs whose files are away too."""

    mode: Mode = Mode.LIST
    older_than: str | None = None
    listed: int = 0
    reachable: int = 0
    kept: Mapping[str, int] = field(default_factory=dict)
    orphans: int = 0
    bytes: int = 0
    requests: int | None = None
    engine: str = "inline"
    trash: Sequence[TrashFacts] | None = omitted()
    left_alone: Sequence[KeptFilesFacts] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningResult(Facts):
    """The orphan files that were deleted or moved away."""

    run_id: str = ""
    deleted: int = 0
    quarantined: int = 0
    bytes: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult(Facts):
    """The files of a run that were moved back, and those that exist again."""

    run_id: str
    restored: int = 0
    present: int = 0
    failed: int = 0


@dataclass(slots=True, kw_only=True)
class PurgeResult(Facts):
    """The files of runs that were deleted permanently."""

    runs: int = 0
    purged: int = 0
    bytes: int = 0
    failed: int = 0
