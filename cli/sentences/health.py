"""What `lake health` did, as one sentence."""

from __future__ import annotations

from collections import Counter

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import listed
from lake.core.base.outcome import Outcome
from lake.core.maintain.health.facts import HealthResult

_GRADES = ("bad", "due", "good")
# Without options, this command changes nothing.
_LISTING = "deletes"


def sentence(outcome: Outcome) -> str:
    """Return how many tables have each grade."""
    result = HealthResult.of(outcome.result)
    tables = result.tables
    text = listed(sum(row.table is not None for row in tables), "table")
    counts = Counter(row.grade for row in tables if row.error is None)
    grades = [f"{counts[grade]:,} {grade}" for grade in _GRADES if counts[grade]]
    grades += [f"{counts[None]:,} without a grade"] if counts[None] else []
    if grades:
        text += f": {', '.join(grades)}"
    failed = sum(row.error is not None for row in tables)
    if failed:
        text += f"; {failed:,} could not be read"
    return f"{text}; not looked for: {', '.join(result.not_looked_at)}" if tables else text


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the command that saves most for the table that needs it most."""
    needy = [row for row in HealthResult.of(outcome.result).tables if row.needs and row.table]
    if not needy:
        return None
    command, table = needy[0].needs[0], str(needy[0].table)
    return line.of(command, table, *([] if command == _LISTING else ["--dry-run"]))
