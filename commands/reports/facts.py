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
    """A reader whose progress a table protects."""

    name: str
    """The name of the consumer."""
    branch: str | None
    """The branch that it reads; null if it is not known."""
    position: Position
    """The last snapshot that it read."""
    head: str
    """The branch's head when the reader loaded the table last."""
    lag: Lag
    """What it has not read."""
    expired_snapshots: int
    """Snapshots that it needs and that have expired, at least."""
    age_ms: int
    """The age of `head`."""
    max_age_ms: int | None
    """The age of `head` at which it protects no snapshots any more; null for that of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersResult(Facts):
    """The consumers of a table."""

    consumers: Sequence[ConsumerFacts] = ()
    """The consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDropFacts(Facts):
    """The consumer that is or was removed."""

    dropped: str = ""
    """With `drop=`, the name of the consumer that is removed."""
    consumers: Sequence[ConsumerFacts] | None = omitted()
    """In a plan, what is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFacts(Facts):
    """A setting in effect and where it comes from."""

    name: str
    """The name of the setting."""
    value: str | Mapping[str, str] | None
    """Its value, without secrets."""
    source: str
    """Where it comes from: an option, a variable of the environment, or a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFacts(Facts):
    """A setting of a file in the working folder that does not count."""

    name: str
    """The name of the setting."""
    source: str
    """The file that contains it."""
    reason: str
    """Why it does not count."""
    hint: str
    """What to do so that it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult(Facts):
    """The settings."""

    catalog: str | None = None
    """The catalog that is used; null if there is no choice."""
    catalogs: Sequence[str] = ()
    """The names of the configured catalogs."""
    pyiceberg_file: str | None = None
    """The file of PyIceberg that configures catalogs; null without one."""
    settings: Sequence[SettingFacts] = ()
    """The settings in effect."""
    ignored: Sequence[IgnoredFacts] = ()
    """Settings of files of the working folder that do not count."""
    trusted_folders: Sequence[str] = ()
    """The folders that are trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustResult(Facts):
    """The folders that are trusted from now on, or no longer, and all that are trusted."""

    trusted: Sequence[str] = ()
    """The folders that are trusted from now on."""
    withdrawn: Sequence[str] = ()
    """The folders that are no longer trusted."""
    trusted_folders: Sequence[str] = ()
    """All folders that are trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts(Facts):
    """A snapshot, with the counters and ids that its summary declares."""

    snapshot_id: str
    parent_id: str | None
    """The snapshot before it; null for the first one."""
    committed_at: str | None
    operation: str | None
    """What the commit did: `append`, `overwrite`, `replace` or `delete`."""
    added_files: int | None
    """Data files that it added; null, as the next three, if its summary does not count them."""
    removed_files: int | None
    """Data files that it removed."""
    added_rows: int | None
    """Rows that it added."""
    removed_rows: int | None
    """Rows that it removed."""
    refs: Sequence[str]
    """The branches and tags that point to it."""
    job_id: str | None
    """The Flink job, or the staged run, that wrote it; null for others."""
    checkpoint_id: str | None
    """The checkpoint of that job."""
    query_id: str | None
    """The streaming query of Spark that wrote it; null for others."""
    epoch_id: int | None
    """The epoch of that query."""
    operation_id: str | None
    """The operation of `lake` that committed it; null for other programs."""
    source: str | None
    """What was loaded: the first three names, without secrets."""
    command: str | None
    """The command of `lake` that committed it."""
    run_id: str | None
    """The run id of the load or the deletion."""
    user: str | None
    """The user that ran the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsResult(Facts):
    """The snapshots of a table, newest first."""

    snapshots: Sequence[SnapshotFacts] = ()
    """The snapshots, newest first."""


@dataclass(frozen=True, slots=True)
class Size(Facts):
    """The size of the table and the time to plan a full scan of it."""

    files: int
    """Data files of the table."""
    bytes: int
    """Bytes of these data files."""
    bytes_on_disk: int
    """Bytes of all files in the table's folder."""
    planning_ms: int
    """Milliseconds to plan a full scan."""


@dataclass(frozen=True, slots=True)
class Step(Facts):
    """One command of a tour: what it did, and the seconds that it took."""

    command: str
    """The command line."""
    did: str
    """What it did."""
    seconds: float

    @property
    def title(self) -> str:
        """The command line and what it did."""
        return f"$ {self.command}: {self.did} in {format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class SizedStep(Step):
    """One command of the tour of one table, with the table before and after it."""

    before: Size
    """The table before the step."""
    after: Size
    """The table after the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult(Facts):
    """What the tour did."""

    rows: int = 0
    """Rows of the table."""
    commits: int = 0
    """Commits that loaded them."""
    folder: str = ""
    """The folder of the demonstration."""
    steps: Sequence[SizedStep] = ()
    """The commands, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeCounts(Facts):
    """How many tables have each grade, and how many could not be read."""

    bad: int = 0
    """Tables whose grade is `bad`."""
    due: int = 0
    """Tables whose grade is `due`."""
    good: int = 0
    """Tables whose grade is `good`."""
    unreadable: int = 0
    """Tables that could not be read."""

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
    """The folder of the demonstration."""
    before: GradeCounts
    """The grades before maintenance."""
    after: GradeCounts
    """The grades after maintenance."""
    page: str
    """The path of the page that shows them."""
    steps: Sequence[Step]
    """The commands, in their order."""
