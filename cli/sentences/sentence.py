"""The last line of a command for people, whatever the command; see `lake.cli.sentences`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.sentences import branching, data, maintenance, metadata, others
from lake.cli.sentences.data import previewed
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
    write = _SENTENCES.get(outcome.command)
    text = write(outcome) if write else str(outcome.status).replace("-", " ")
    return f"{text} · {hidden}" if hidden else text


def _already_running(running: Facts) -> str:
    if not running:
        return "already running: another command of lake works on this table"
    return (
        f"already running: lake {running['command']} on {running['host']} "
        f"(process {running['pid']}) since {running['since']}; nothing to do"
    )


_SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    **branching.SENTENCES,
    **data.SENTENCES,
    **maintenance.SENTENCES,
    **metadata.SENTENCES,
    **others.SENTENCES,
}
