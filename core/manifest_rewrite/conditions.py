"""Conditions of a rewrite of manifests: how many there are, and how many of them a scan of one partition reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lake.core.errors import InvalidRequestError
from lake.core.expressions.conditions import parse_terms
from lake.core.options import Option

MANIFESTS, OVERLAP = "manifests", "overlap"
NAMES = (MANIFESTS, OVERLAP)
_HINT = f"write it as 'manifests > 100 or overlap > 2'; the names are {', '.join(NAMES)}"
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition: a value must reach `number`, or exceed it if `is_strict`."""

    name: str
    number: float
    is_strict: bool

    def holds(self, value: float | None) -> bool:
        """Whether a value fulfils the condition; None, a value that does not exist, does not."""
        if value is None:
            return False
        return value > self.number if self.is_strict else value >= self.number


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Return the conditions of an expression; one that holds is enough.

    Raises:
        InvalidRequestError: it is not such an expression, or contains a name twice.
    """
    return tuple(
        Limit(term.name, _number(term.name, term.limit), term.is_strict)
        for term in parse_terms(text, NAMES, option=Option.CONDITION, hint=_HINT)
    )


def is_due(limits: tuple[Limit, ...], values: Mapping[str, float | None]) -> bool:
    """Whether a condition holds, or there is none; names without a value are left out."""
    return not limits or any(
        limit.holds(values[limit.name]) for limit in limits if limit.name in values
    )


def facts(limits: tuple[Limit, ...], values: Mapping[str, float | None]) -> dict[str, Any]:
    """Return ``{name: [value, limit]}`` for the outcome."""
    return {limit.name: [values.get(limit.name), limit.number] for limit in limits}


def _number(name: str, text: str) -> float:
    if _NUMBER.fullmatch(text) is None or (name == MANIFESTS and "." in text):
        raise InvalidRequestError(
            f"{Option.CONDITION}: {text!r} is not a number of {name}", hint=_HINT
        )
    number = float(text)
    return math.floor(number) if name == MANIFESTS else number
