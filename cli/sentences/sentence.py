"""The last line of a command for people, whatever the command; see `lake.cli.sentences`."""

from __future__ import annotations

from lake.cli.sentences import each_table
from lake.cli.sentences.modules import module_of
from lake.cli.sentences.scan import previewed
from lake.core.base.facts import AlreadyRunning, EachTableResult, RunFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.read.exports.facts import ReadResult


def sentence(outcome: Outcome, hidden: str = "") -> str:
    """Return what a command did, without the table's name, the snapshot and the time it took.

    Args:
        outcome: what was done.
        hidden: how many columns of the table that was printed were left out; empty if none were.
    """
    if isinstance(outcome.result, EachTableResult):
        return each_table.sentence(outcome, outcome.result)
    if outcome.status is Status.ALREADY_RUNNING:
        return _already_running(outcome)
    if outcome.command == "scan" and ReadResult.of(outcome.result).preview is not None:
        return previewed(outcome, hidden)
    text: str = module_of(outcome.command).sentence(outcome)
    return f"{text} · {hidden}" if hidden else text


def _already_running(outcome: Outcome) -> str:
    result = outcome.result
    running = result.running if isinstance(result, AlreadyRunning) else RunFacts()
    if running.command is None:
        return "already running: another command of lake works on this table"
    return (
        f"already running: lake {running.command} on {running.host} "
        f"(process {running.pid}) since {running.since}; nothing to do"
    )
