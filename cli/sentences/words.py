"""Words and numbers that the sentences of several commands use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lake.core.read.continuous.position import Lag, Position

NOTHING_WRITTEN = "; nothing was written"


def dry_or_done(text: str, *, dry: bool) -> str:
    """Return a sentence about a change; that of a dry run says that it is one."""
    return f"dry run: {text}{NOTHING_WRITTEN}" if dry else text


class Facts(dict[str, Any]):
    """The plan or result of an outcome, in which an unknown count is 0: a missing key must not fail a command."""

    def __init__(self, values: Any) -> None:
        values = values if isinstance(values, Mapping) else values.document()
        super().__init__({key: value for key, value in values.items() if value is not None})

    def __missing__(self, key: str) -> int:
        return 0


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,000 rows``."""
    return f"{number:,} {noun + 's' * (number != 1)}"


def listed(number: int, noun: str) -> str:
    """Return how many rows a listing has."""
    return counted(number, noun) if number else f"no {noun}s"


def rows_or_less(facts: Facts, name: str) -> str:
    """Transitional."""
    return rows_or_at_most(facts.get(name), facts.get(f"{name}_at_most"))


def rows_or_at_most(rows: int | None, most: int | None) -> str:
    """Return an exact number of rows, or the most that there can be; empty if neither is known."""
    if rows is not None:
        return counted(rows, "row")
    return "" if most is None else f"{counted(most, 'row')} or less"


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
