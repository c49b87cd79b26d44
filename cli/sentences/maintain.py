"""What `lake maintain` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import listed
from lake.core.base.errors import ReportedError
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.rounds.facts import (
    ALL_ACTIONS,
    RoundFacts,
    RoundResult,
    RoundsResult,
    WrittenFacts,
)
from lake.core.maintain.rounds.report import with_details

# Failures that stay until the table or its properties are mended.
_PERMANENT = frozenset(
    {"bad-input", "corrupt", "invalid-request", "not-authorised", "not-found", "refused"}
)
_OF_PROPERTIES = frozenset({"invalid-request", "refused"})


def sentence(outcome: Outcome) -> str:
    """Return how many actions were done, and what is left."""
    if isinstance(outcome.plan, RoundFacts):
        is_dry = not isinstance(outcome.plan, WrittenFacts)
        return f"{'dry run: ' if is_dry else ''}{_planned(outcome.plan)}"
    result = RoundResult.of(outcome.result)
    done = [item for item in result.actions if item.status in {Status.DONE, Status.PARTIAL}]
    tables = len({item.table for item in done})
    parts = [f"{counted(len(done), 'action')} on {tables:,}"] if done else []
    parts += [f"{len(result.failed):,} failed"] if result.failed else []
    unread = sum(item.action == ALL_ACTIONS for item in result.rest)
    left = len(result.rest) - unread
    parts += [f"{left:,} left for the next run"] if left else []
    held = len({item.table for item in result.left_to_another})
    parts += [f"{counted(held, 'table')} left to another run of lake"] if held else []
    parts += [f"{counted(unread, 'table')} not read in time"] if unread else []
    obsolete = counted(len(result.obsolete), "action")
    parts += [f"{obsolete} not possible any more"] if result.obsolete else []
    return f"{_start(result)}{'; '.join(parts) or 'nothing to do'}"


def stopped(error: ReportedError) -> tuple[Outcome, str] | None:
    """Return a run that a signal stopped, and how its line begins; None if it had not begun."""
    result = error.result
    if isinstance(result, RoundsResult):
        ended = f"{counted(result.rounds, 'round')} {'has' if result.rounds == 1 else 'have'} ended"
        return Outcome(status=Status.DONE, result=result), f"stopped between rounds; {ended}"
    if not isinstance(result, RoundResult):
        return None
    outcome = with_details(Outcome(status=Status.PARTIAL, result=result), verbose=False)
    done = sentence(outcome) if result.tables else "nothing was done"
    return outcome, f"{error.message}; {done}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the run needs more than its dry run; None if nothing is due."""
    return () if RoundFacts.of(outcome.plan).due else None


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that uses a file that was written, or that goes on with what is left."""
    if file := _value(line.rest, "--plan"):
        return line.of("apply", file)
    if file := _value(line.rest, "--init"):
        return line.of("maintain", "--policy", file, "--dry-run")
    if isinstance(outcome.plan, RoundFacts):
        given = [text for text in line.rest if text != "--dry-run"]
        return line.of("maintain", *given) if outcome.plan.due and line.rest else None
    return line.again("maintain") if line.rest and helps_to_repeat(outcome) else None


def helps_to_repeat(outcome: Outcome) -> bool:
    """Whether the same command may do more: something is left, or failed for a reason that may pass."""
    result = RoundResult.of(outcome.result)
    if result.rest or any(item.status == Status.PARTIAL for item in result.actions):
        return True
    return any(item.error.kind not in _PERMANENT for item in result.failed)


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of an option; None if it was not given."""
    for argument, following in pairwise([*arguments, ""]):
        if argument == flag:
            return following
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None


def _planned(plan: RoundFacts) -> str:
    tables = len({item.table for item in plan.due})
    parts = (
        [f"{counted(len(plan.due), 'action')} due on {tables:,}"]
        if plan.due
        else ["nothing is due"]
    )
    refused = sum(item.error.kind in _OF_PROPERTIES for item in plan.failed)
    unreadable = len(plan.failed) - refused
    parts += [f"{counted(unreadable, 'table')} could not be read"] if unreadable else []
    have = "has" if refused == 1 else "have"
    what = f"{counted(refused, 'table')} {have} a property that is not allowed"
    parts += [what] if refused else []
    return f"{_start(plan)}{'; '.join(parts)}; nothing was changed"


def _start(facts: RoundFacts | RoundResult) -> str:
    """Return the number of tables that could be read; empty if none could be."""
    return f"{listed(facts.tables, 'table')}: " if facts.tables or not facts.failed else ""
