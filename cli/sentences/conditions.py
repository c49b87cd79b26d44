"""The condition of a run, with its values, as a part of a sentence."""

from __future__ import annotations

from collections.abc import Callable

from lake.cli.sentences.words import Facts
from lake.core.base.units import format_duration, format_size


def conditions(plan: Facts, *, holds: bool) -> str:
    """Return the comparisons of a condition that hold, or those that do not, with the values in their units."""
    units: dict[str, Callable[[int], str]] = {
        "age": lambda milliseconds: format_duration(milliseconds / 1000),
        "bytes": format_size,
    }
    texts = []
    for item in plan["conditions"]:
        if (item["holds"] is True) != holds:
            continue
        name, _, limit = item["condition"].partition(" ")
        value = item["value"]
        shown = "unknown" if value is None else units.get(name, "{:,}".format)(value)
        if value is not None and item["holds"] is None:
            shown += " or more"
        texts.append(f"{name} {shown} ({'' if holds else 'needs '}{limit})")
    return ", ".join(texts)


def due(plan: Facts) -> str:
    """Return why a run was due; empty if it had no condition."""
    return f"; due: {conditions(plan, holds=True)}" if plan["is_due"] else ""
