"""The condition of a rewrite of manifests: how many there are, and how many of them a scan of one partition reads."""

from __future__ import annotations

from lake.core.base.options import Option
from lake.core.spec.expressions.conditions import COUNT, RATIO, Condition, parse_condition

MANIFESTS, OVERLAP = "manifests", "overlap"
QUANTITIES = {MANIFESTS: COUNT, OVERLAP: RATIO}


def parse_rewrite_condition(text: str) -> Condition:
    """Return the condition of a text.

    Raises:
        InvalidRequestError: it is not a condition.
    """
    example = "manifests > 100 or overlap > 2"
    return parse_condition(text, QUANTITIES, option=Option.CONDITION, example=example)
