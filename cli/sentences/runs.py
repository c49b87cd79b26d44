"""What `lake runs` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import listed
from lake.core.base.outcome import Outcome
from lake.core.base.units import format_duration
from lake.core.maintain.run_log.facts import RunsResult

# Less would be shown as zero.
_LEAST = 0.05


def sentence(outcome: Outcome) -> str:
    """Return how many runs there are, and what their work saved; without a run, where they were looked for."""
    result = RunsResult.of(outcome.result)
    if not result.found:
        what = f"log {result.log}" if result.log else f"table {result.runs_table}"
        return f"no runs; there is no {what}"
    if not result.matching:
        return f"no runs in {result.log or result.runs_table}"
    text = listed(result.matching, "run")
    if failed := sum(row.failed for row in result.actions):
        text += f", {failed:,} failed"
    work = format_duration(sum(row.seconds for row in result.actions))
    saved = sum(row.saved_seconds or 0.0 for row in result.actions)
    gain = f" saved scans {format_duration(saved)}" if saved >= _LEAST else ""
    return f"{text}; {work} of work{gain}"


def next_step(_outcome: Outcome, _line: Line) -> str | None:
    """Return None: the runs of the log have ended."""
    return None
