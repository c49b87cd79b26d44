"""What `lake maintain` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import counted
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.rounds.facts import RoundFacts, RoundResult


def sentence(outcome: Outcome) -> str:
    """Return how many actions were done, and what is left."""
    if isinstance(outcome.plan, RoundFacts):
        return _planned(outcome.plan)
    result = RoundResult.of(outcome.result)
    done = [item for item in result.actions if item.status in {Status.DONE, Status.PARTIAL}]
    tables = len({item.table for item in done})
    text = f"{counted(result.tables, 'table')}: {counted(len(done), 'action')} on {tables:,}"
    if not (result.actions or result.rest or result.failed):
        text = f"{counted(result.tables, 'table')}: nothing was due"
    for number, what in (
        (len(result.failed), "failed"),
        (len(result.rest), "left for the next run"),
    ):
        if number:
            text += f"; {number:,} {what}"
    return text


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the run needs more than its dry run; None if nothing is due."""
    return () if RoundFacts.of(outcome.plan).due else None


def _planned(plan: RoundFacts) -> str:
    tables = len({item.table for item in plan.due})
    text = f"dry run: {counted(plan.tables, 'table')}: {counted(len(plan.due), 'action')} due on {tables:,}"
    if not plan.due:
        text = f"dry run: {counted(plan.tables, 'table')}: nothing is due"
    if plan.failed:
        text += f"; {counted(len(plan.failed), 'table')} could not be read"
    return f"{text}; nothing was changed"
