"""Words and numbers that the sentences of several commands use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.units import counted, readable_time

if TYPE_CHECKING:
    from lake.core.base.facts import EarlierRunFacts
    from lake.core.read.continuous.position import Lag, Position

NOTHING_WRITTEN = "; nothing was written"


def dry_or_done(text: str, *, dry: bool) -> str:
    """Return a sentence about a change; that of a dry run says that it is one."""
    return f"dry run: {text}{NOTHING_WRITTEN}" if dry else text


def read_by(engine: str) -> str:
    """Return what read the manifests of a plan, if it was not the command itself."""
    return "" if engine == "inline" else "; Spark read the manifests"


def listed(number: int, noun: str) -> str:
    """Return how many rows a listing has."""
    return counted(number, noun) if number else f"no {noun}s"


def rows_or_at_most(rows: int | None, most: int | None) -> str:
    """Return an exact number of rows, or the most that there can be; empty if neither is known."""
    if rows is not None:
        return counted(rows, "row")
    return "" if most is None else f"{counted(most, 'row')} or less"


def earlier_run(run: EarlierRunFacts, done: str) -> str:
    """Return when a run was `done`, as far as it is known: its snapshot may have expired."""
    when = f" on {readable_time(run.committed_at)}" if run.committed_at else ""
    snapshot = f" (snapshot {run.snapshot_id})" if run.snapshot_id else " before"
    return f'run "{run.run_id}" was {done}{when}{snapshot}; nothing to do'


def remaining(number: int | None, noun: str) -> str:
    """Return what a limit left out; empty if it left out nothing."""
    return f"; {counted(number, noun)} {'remains' if number == 1 else 'remain'}" if number else ""


def place(position: Position | None, lag: Lag | None) -> str:
    """Return the position of a follow and what is after it."""
    if position is None:
        return "no snapshot was discovered"
    snapshot = position.snapshot_id
    text = "before the first snapshot" if snapshot is None else f"at snapshot {str(snapshot)[:8]}"
    if lag is not None and lag.snapshots:
        text += f", {counted(lag.snapshots, 'snapshot')} behind"
        text += f" ({counted(lag.rows, 'row')})" if lag.rows else ""
    return text
