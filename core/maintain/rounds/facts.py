"""What a round decided and did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import ErrorFacts, Facts
from lake.core.maintain.run_log.entries import ExpectedFacts, Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFacts(Facts):
    """An action on a table and the reason why it is due, or why it is left alone."""

    table: str
    action: str
    reason: str
    forecast: ExpectedFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts(Facts):
    """An action that was done or tried; `after` is None if the table was not changed."""

    table: str
    action: str
    status: str
    seconds: float
    reason: str
    forecast: ExpectedFacts | None = None
    before: Measures | None = None
    after: Measures | None = None
    bytes: int | None = None
    operation_id: str | None = None
    snapshot_ids: Sequence[str] = ()
    warnings: Sequence[str] = ()
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts(Facts):
    """A table that could not be read, or an action that failed; the name may be that of a namespace."""

    table: str
    action: str | None
    error: ErrorFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFacts(Facts):
    """The checkpoints of a table that `lake replay` could commit."""

    table: str
    checkpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts(Facts):
    """The plan: the number of tables, and what is due for them in the order in which it is done."""

    tables: int = 0
    due: Sequence[DecisionFacts] = ()
    left_alone: Sequence[DecisionFacts] = ()
    pending: Sequence[PendingFacts] = ()
    failed: Sequence[FailureFacts] = ()


class WrittenFacts(RoundFacts):
    """The plan of a run that wrote it, or a policy, to a file."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class RoundResult(Facts):
    """What was done.

    `rest` are actions that are due and for which the budget was too small, or which a stopped run had not begun.
    `obsolete` are actions that no later run can do, because the table is gone, was replaced, or is excluded.
    """

    run: str = ""
    tables: int = 0
    actions: list[ActionFacts] = field(default_factory=list)
    left_alone: list[DecisionFacts] = field(default_factory=list)
    rest: list[DecisionFacts] = field(default_factory=list)
    obsolete: list[DecisionFacts] = field(default_factory=list)
    pending: list[PendingFacts] = field(default_factory=list)
    failed: list[FailureFacts] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsResult(Facts):
    """The number of rounds that have ended, of a process that was stopped between two of them."""

    rounds: int = 0
