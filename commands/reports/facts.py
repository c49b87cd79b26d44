"""What the commands that have no package of their own found or did, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.facts import Facts, omitted
from lake.core.base.units import format_duration

if TYPE_CHECKING:
    from lake.core.read.continuous.position import Lag, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts(Facts):
    """A reader whose progress a table protects; `branch` and what is after `position` are None if not known."""

    name: str
    branch: str | None
    position: Position
    head: str
    lag: Lag
    expired_snapshots: int
    age_ms: int
    max_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersResult(Facts):
    """The consumers of a table."""

    consumers: Sequence[ConsumerFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDropFacts(Facts):
    """The consumer that is or was removed, as the plan has it; the result has its name only."""

    dropped: str = ""
    consumers: Sequence[ConsumerFacts] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFacts(Facts):
    """A setting in effect and where it comes from."""

    name: str
    value: str | Mapping[str, str] | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFacts(Facts):
    """A setting of a file in the working folder that does not count."""

    name: str
    source: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult(Facts):
    """The settings; `catalog` is None if none is chosen."""

    catalog: str | None = None
    catalogs: Sequence[str] = ()
    pyiceberg_file: str | None = None
    settings: Sequence[SettingFacts] = ()
    ignored: Sequence[IgnoredFacts] = ()
    trusted_folders: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustResult(Facts):
    """The folders that are trusted from now on, or no longer, and all that are trusted."""

    trusted: Sequence[str] = ()
    withdrawn: Sequence[str] = ()
    trusted_folders: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts(Facts):
    """A snapshot, with the counters and ids that its summary declares."""

    snapshot_id: str
    parent_id: str | None
    committed_at: str | None
    operation: str | None
    added_files: int | None
    removed_files: int | None
    added_rows: int | None
    removed_rows: int | None
    refs: Sequence[str]
    job_id: str | None
    checkpoint_id: str | None
    operation_id: str | None
    source: str | None
    command: str | None
    run_id: str | None
    user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsResult(Facts):
    """The snapshots of a table, newest first."""

    snapshots: Sequence[SnapshotFacts] = ()


@dataclass(frozen=True, slots=True)
class Size(Facts):
    """The size of the table and the time to plan a full scan of it."""

    files: int
    bytes: int
    bytes_on_disk: int
    planning_ms: int


@dataclass(frozen=True, slots=True)
class Step(Facts):
    """One command of a tour: what it did, and the seconds that it took."""

    command: str
    did: str
    seconds: float

    @property
    def title(self) -> str:
        """The command line and what it did."""
        return f"$ {self.command}: {self.did} in {format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class SizedStep(Step):
    """One command of the tour of one table, with the table before and after it."""

    before: Size
    after: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult(Facts):
    """What the tour did."""

    rows: int = 0
    commits: int = 0
    folder: str = ""
    steps: Sequence[SizedStep] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeCounts(Facts):
    """How many tables have each grade, and how many could not be read."""

    bad: int = 0
    due: int = 0
    good: int = 0
    unreadable: int = 0

    @property
    def tables(self) -> int:
        """The number of all tables."""
        return self.bad + self.due + self.good + self.unreadable

    @property
    def text(self) -> str:
        """The counts above zero."""
        return ", ".join(f"{count} {name}" for name, count in self.values().items() if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseDemoResult(Facts):
    """What the tour of many tables did, and their grades before and after it."""

    folder: str
    before: GradeCounts
    after: GradeCounts
    page: str
    steps: Sequence[Step]
