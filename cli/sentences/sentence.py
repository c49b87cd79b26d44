"""The last line of a command for people, whatever the command; see `lake.cli.sentences`."""

from __future__ import annotations

from importlib import import_module

from lake.cli.sentences.scan import previewed
from lake.cli.sentences.words import Facts
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome, hidden: str = "") -> str:
    """Return what a command did, without the table's name, the snapshot and the time it took.

    Args:
        outcome: what was done.
        hidden: how many columns of the table that was printed were left out; empty if none were.
    """
    if outcome.status is Status.ALREADY_RUNNING:
        return _already_running(Facts(outcome.result.get("running") or {}))
    if outcome.command == "scan" and "preview" in outcome.result:
        return previewed(outcome, hidden)
    # Only the command that ran needs its module.
    module = import_module(f"lake.cli.sentences.{outcome.command.replace('-', '_')}")
    text: str = module.sentence(outcome)
    return f"{text} · {hidden}" if hidden else text


def _already_running(running: Facts) -> str:
    if not running:
        return "already running: another command of lake works on this table"
    return (
        f"already running: lake {running['command']} on {running['host']} "
        f"(process {running['pid']}) since {running['since']}; nothing to do"
    )
