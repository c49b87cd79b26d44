"""The condition of a run, with its values, as a part of a sentence."""

from __future__ import annotations

from collections.abc import Callable

from lake.core.base.units import format_duration, format_size
from lake.core.spec.expressions.conditions import ConditionFacts


def conditions(condition: ConditionFacts, *, holds: bool) -> str:
    """Return the comparisons of a condition that hold, or those that do not, with the values in their units."""
    units: dict[str, Callable[[float], str]] = {
        "age": lambda milliseconds: format_duration(milliseconds / 1000),
        "bytes": lambda size: format_size(int(size)),
    }
    texts = []
    for item in condition.conditions:
        if (item.holds is True) != holds:
            continue
        name, _, limit = item.condition.partition(" ")
        shown = "unknown" if item.value is None else units.get(name, "{:,}".format)(item.value)
        if item.value is not None and item.holds is None:
            shown += " or more"
        texts.append(f"{name} {shown} ({'' if holds else 'needs '}{limit})")
    return ", ".join(texts)


def due(condition: ConditionFacts | None) -> str:
    """Return why a run was due; empty if it had no condition."""
    return f"; due: {conditions(condition, holds=True)}" if condition and condition.is_due else ""
