"""The command that continues what a command did.

The module of a command's sentence may have two functions for this. `after_dry_run` returns the options that the
command needs more than its dry run, or None if the dry run found nothing to do. `next_step` returns the line that
continues an end that is not a dry run.
"""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences import each_table
from lake.cli.sentences.line import Line
from lake.cli.sentences.modules import module_of
from lake.core.base.facts import EachTableResult
from lake.core.base.outcome import Outcome, Status

# Options that a dry run has, and the command that it prepares has not.
_OF_DRY_RUNS = frozenset({"--count", "--dry-run", "--explain"})


def next_step(
    outcome: Outcome, options: Sequence[str] = (), rest: Sequence[str] = ()
) -> str | None:
    """Return the command that continues what was done; None if nothing is left to do.

    Args:
        outcome: what was done.
        options: the global options that were given.
        rest: the arguments of the command that were given.
    """
    line, module = Line(options, rest), module_of(outcome.command)
    if isinstance(outcome.result, EachTableResult):
        return _after_each_table(outcome, outcome.result, line)
    if outcome.status is Status.DRY_RUN:
        more = module.after_dry_run(outcome) if hasattr(module, "after_dry_run") else ()
        if more is None or not rest:
            return None
        given = [text for text in rest if text not in _OF_DRY_RUNS]
        return line.of(outcome.command, *given, *(text for text in more if text not in given))
    if hasattr(module, "next_step"):
        following: str | None = module.next_step(outcome, line)
        return following
    return line.again(outcome.command) if outcome.status is Status.PARTIAL and rest else None


def _after_each_table(outcome: Outcome, result: EachTableResult, line: Line) -> str | None:
    """Return the line without its dry run if there is work, or the same line for a table with findings."""
    given = [text for text in line.rest if text not in _OF_DRY_RUNS]
    if given != [*line.rest]:
        found = each_table.ends_of(outcome, result)[each_table.WITH_WORK]
        return line.of(outcome.command, *given) if found else None
    for row in result.tables:
        if row.status in {Status.DAMAGED, Status.SUSPECT}:
            one = [row.table if text == outcome.table else text for text in given]
            return line.of(outcome.command, *one)
    return None
