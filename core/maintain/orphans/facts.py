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
    """The id of the run."""
    created_at: str | None
    """The time of the run; null if it is not known."""
    files: int
    """Files that are still away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFilesFacts(Facts):
    """The files that are kept for one reason."""

    reason: str
    """A reason of `kept`, or `reachable` for files that the metadata names."""
    files: int
    """Files."""
    bytes: int | None
    """Their bytes; null for `reachable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFacts(Facts):
    """The files below a table's folders; see `CleaningPlan`."""

    mode: Mode = Mode.LIST
    """What is done: `list`, `delete` or `quarantine`."""
    older_than: str | None = None
    """The time since which an orphan file must not have changed."""
    listed: int = 0
    """Files that were listed."""
    reachable: int = 0
    """Files that the metadata names."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """The number of the other files that are kept, by the reason."""
    orphans: int = 0
    """Files that no snapshot references."""
    bytes: int = 0
    """Their bytes."""
    requests: int | None = None
    """Requests to the object store to move or delete them; null on local disks and for a list."""
    engine: str = "inline"
    trash: Sequence[TrashFacts] | None = omitted()
    """For a list, the runs whose files are away."""
    left_alone: Sequence[KeptFilesFacts] | None = omitted()
    """With `explain=`, the files that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningResult(Facts):
    """The orphan files that were deleted or moved away."""

    run_id: str = ""
    """The id by which `restore=` finds the files."""
    deleted: int = 0
    """Files that were deleted."""
    quarantined: int = 0
    """Files that were moved away."""
    bytes: int = 0
    """Their bytes."""
    failed: int = 0
    """Files that could not be deleted or moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult(Facts):
    """The files of a run that were moved back, and those that exist again."""

    run_id: str
    """The id of the run."""
    restored: int = 0
    """Files that were moved back."""
    present: int = 0
    """Files that exist again."""
    failed: int = 0
    """Files that could not be moved."""


@dataclass(slots=True, kw_only=True)
class PurgeResult(Facts):
    """The files of runs that were deleted permanently."""

    runs: int = 0
    """Runs whose files were deleted."""
    purged: int = 0
    """Files that were deleted."""
    bytes: int = 0
    """Their bytes."""
    failed: int = 0
    """Files that could not be deleted."""
