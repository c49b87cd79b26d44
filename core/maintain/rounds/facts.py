"""What a round decided and did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import ErrorFacts, Facts
from lake.core.maintain.run_log.entries import ExpectedFacts, Measures

# Instead of an action: all of them are left alone, or none was decided because the table was not read.
ALL_ACTIONS = "all"
# The reason of an action that finds the table's lock held.
ANOTHER_RUN = "another run of lake works on the table"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFacts(Facts):
    """An action on a table and the reason why it is due, or why it is left alone."""

    table: str
    action: str
    """The command; `all` for a table that was not read."""
    reason: str
    """Why it is due, or why it is left alone."""
    forecast: ExpectedFacts | None = None
    """What it is expected to do; null if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts(Facts):
    """An action that was done or tried."""

    table: str
    action: str
    """The command."""
    status: str
    """How it ended."""
    seconds: float
    reason: str
    """Why it was due."""
    forecast: ExpectedFacts | None = None
    """What it was expected to do; null if it was not known."""
    before: Measures | None = None
    """What the table's metadata shows before; null if it is not known."""
    after: Measures | None = None
    """What it shows after; null if the table was not changed."""
    bytes: int | None = None
    """Bytes that were read to rewrite them; null if nothing was."""
    operation_id: str | None = None
    snapshot_ids: Sequence[str] = ()
    warnings: Sequence[str] = ()
    """What went well, but needs attention."""
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts(Facts):
    """A table that could not be read, or an action that failed."""

    table: str
    """The table, or the namespace."""
    action: str | None
    """The command; null if the table could not be read."""
    error: ErrorFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFacts(Facts):
    """The checkpoints of a table that `lake replay` could commit."""

    table: str
    checkpoints: int
    """The number of its checkpoints that can be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts(Facts):
    """The plan."""

    tables: int = 0
    """The number of tables."""
    due: Sequence[DecisionFacts] = ()
    """What is due, in the order in which it is done."""
    left_alone: Sequence[DecisionFacts] = ()
    """What is left alone."""
    pending: Sequence[PendingFacts] = ()
    """Tables with checkpoints that `lake replay` could commit."""
    failed: Sequence[FailureFacts] = ()
    """Tables that could not be read."""


class WrittenFacts(RoundFacts):
    """The plan of a run that wrote it, or a policy, to a file."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class RoundResult(Facts):
    """What was done."""

    run: str = ""
    """The id of the run."""
    tables: int = 0
    """The number of tables."""
    actions: list[ActionFacts] = field(default_factory=list)
    """What was done or tried."""
    left_alone: list[DecisionFacts] = field(default_factory=list)
    """What was left alone."""
    rest: list[DecisionFacts] = field(default_factory=list)
    """What is due and left for the next run, and the tables that were not read in time."""
    obsolete: list[DecisionFacts] = field(default_factory=list)
    """What no later run can do, because the table is gone, was replaced, or is excluded."""
    pending: list[PendingFacts] = field(default_factory=list)
    """Tables with checkpoints that `lake replay` could commit."""
    failed: list[FailureFacts] = field(default_factory=list)
    """Tables that could not be read, and actions that failed."""

    @property
    def left_to_another(self) -> list[DecisionFacts]:
        """What is left alone because another run works on the table."""
        return [item for item in self.left_alone if item.reason == ANOTHER_RUN]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsResult(Facts):
    """What is known of a process that was stopped between two rounds."""

    rounds: int = 0
    """With `every=`, rounds that have ended, if the process was stopped between two of them."""
