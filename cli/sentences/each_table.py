"""What a command did to each of several tables, as one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lake.cli.sentences.modules import found_nothing
from lake.core.base.facts import EachTableResult, TableRunFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted

# The status of a dry run that found work.
WITH_WORK = Status.DRY_RUN
_ENDS = {
    Status.DONE: "done",
    WITH_WORK: "with work",
    Status.PARTIAL: "done in part",
    Status.DAMAGED: "damaged",
    Status.SUSPECT: "with warnings",
    Status.NOTHING_TO_DO: "with nothing to do",
    Status.ALREADY_RUNNING: "left to another run",
    Status.REFUSED: "refused",
    Status.CONFLICT: "changed by another writer",
    Status.UNKNOWN: "with a commit whose outcome is not known",
    Status.FAILED: "failed",
}


def sentence(outcome: Outcome, result: EachTableResult) -> str:
    """Return how many tables ended in which way."""
    numbers = ends_of(outcome, result)
    ends = ", ".join(f"{numbers[end]:,} {text}" for end, text in _ENDS.items() if numbers[end])
    text = f"{counted(len(result.tables), 'table')}: {ends}"
    is_dry = any(row.status == Status.DRY_RUN for row in result.tables)
    return f"dry run: {text}; nothing was changed" if is_dry else text


def ends_of(outcome: Outcome, result: EachTableResult) -> Mapping[Status, int]:
    """Return the number of tables by status; a dry run that found no work counts as nothing to do."""
    return Counter(_end(outcome.command, row) for row in result.tables)


def _end(command: str, row: TableRunFacts) -> Status:
    status = Status(row.status)
    one = Outcome(status=status, command=command, plan=row.plan, result=row.result)
    return Status.NOTHING_TO_DO if row.error is None and found_nothing(one) else status
