"""Conditions of runs, such as ``files >= 1000 and (bytes >= 10GB or age >= 6h)``.

::

    condition ::= name sign limit
    sign      ::= ">" | ">=" | "<" | "<=" | "=" | "==" | "!=" | "<>"

Conditions are combined as in `lake.core.spec.expressions.logic`. A name is a measure of a table; each command defines
its own. A condition is true, false or unknown, as in SQL, and a run is due if it is true. Measures may cost very
different amounts, so `evaluate` takes those only that decide the answer, the cheapest first.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lake.core.base.errors import InvalidRequestError, did_you_mean
from lake.core.base.facts import Facts
from lake.core.base.options import Option
from lake.core.base.units import natural_number, parse_duration_ms, parse_size
from lake.core.spec.expressions.logic import LogicParser

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ )
    | (?P<quantity> [0-9][0-9A-Za-z.]* )
    | (?P<word> [A-Za-z][A-Za-z0-9_-]* )
    | (?P<sign> <= | >= | <> | != | == | [=<>()] )
    """,
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "not", "or"})
_RATIO = re.compile(r"\d{1,18}(\.\d{1,9})?", re.ASCII)

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}
_SIGNS = {**{sign: sign for sign in _COMPARE}, "==": "=", "<>": "!="}
_NEGATED = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "=": "!=", "!=": "="}


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A measured value of which only a lower bound is known."""

    number: float


# What a measure returned; None if the table does not have such a value.
Value: TypeAlias = float | AtLeast | None


@dataclass(frozen=True, slots=True)
class Quantity:
    """How the limits of a measure are written.

    Args:
        parse: returns the number that a text stands for; None, or an `InvalidRequestError`, if it is not one.
        is_count: whether values are small whole numbers, which may be compared by ``=`` and ``!=`` too.
    """

    parse: Callable[[str], float | None]
    is_count: bool = False


def _ratio(text: str) -> float | None:
    return float(text) if _RATIO.fullmatch(text) else None


COUNT = Quantity(natural_number, is_count=True)
BYTES = Quantity(parse_size)
MILLISECONDS = Quantity(parse_duration_ms)
RATIO = Quantity(_ratio)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measure that is compared with a limit.

    Args:
        name: what is measured.
        sign: one of ``> >= < <= = !=``.
        limit: the limit, in the unit of the measure.
        written: the limit as it was written, e.g. ``10GB``.
    """

    name: str
    sign: str
    limit: float
    written: str

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.written}"

    def negated(self) -> Comparison:
        """Return the comparison that is true if this one is false."""
        return Comparison(self.name, _NEGATED[self.sign], self.limit, self.written)

    def comparisons(self) -> Iterator[Comparison]:
        """Yield this comparison."""
        yield self

    def holds(self, values: Mapping[str, Value]) -> bool | None:
        """Whether the value fulfils the condition; None if it is missing, or not known well enough."""
        value = values.get(self.name)
        if value is None:
            return None
        possible: tuple[float, ...] = ()
        if isinstance(value, AtLeast):
            # The limit may be among the values that are greater.
            possible = (max(value.number, self.limit), math.inf)
            value = value.number
        found = {_COMPARE[self.sign](number, self.limit) for number in (value, *possible)}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class AllOf:
    """Two or more conditions that must all be true."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(_enclosed(part, AllOf, AnyOf) for part in self.parts)

    def negated(self) -> AnyOf:
        """Return the condition that is true if this one is false."""
        return AnyOf(tuple(part.negated() for part in self.parts))

    def comparisons(self) -> Iterator[Comparison]:
        """Yield the comparisons of all parts, as they are written from left to right."""
        for part in self.parts:
            yield from part.comparisons()

    def holds(self, values: Mapping[str, Value]) -> bool | None:
        """Whether all parts hold; None if the values do not decide it."""
        found = {part.holds(values) for part in self.parts}
        return False if False in found else None if None in found else True


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Two or more conditions of which one must be true."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(_enclosed(part, AnyOf) for part in self.parts)

    def negated(self) -> AllOf:
        """Return the condition that is true if this one is false."""
        return AllOf(tuple(part.negated() for part in self.parts))

    def comparisons(self) -> Iterator[Comparison]:
        """Yield the comparisons of all parts, as they are written from left to right."""
        for part in self.parts:
            yield from part.comparisons()

    def holds(self, values: Mapping[str, Value]) -> bool | None:
        """Whether a part holds; None if the values do not decide it."""
        found = {part.holds(values) for part in self.parts}
        return True if True in found else None if None in found else False


# A negation is not a kind of its own: the parser negates the comparisons instead, which is the same in SQL's logic.
Condition: TypeAlias = Comparison | AllOf | AnyOf


def _enclosed(part: Condition, *kinds: type) -> str:
    return f"({part})" if isinstance(part, kinds) else str(part)


@dataclass(frozen=True, slots=True)
class ComparisonFacts(Facts):
    """A comparison whose value was measured."""

    condition: str = ""
    """The comparison, as `files >= 1000`; a `not` is expressed by the sign."""
    value: float | None = None
    """The value; null if it is infinite or not known."""
    holds: bool | None = None
    """Whether it holds; null if that is unknown."""


@dataclass(frozen=True, slots=True)
class ConditionFacts(Facts):
    """The condition of a run."""

    triggers: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """For each name its value and its limits, in bytes and milliseconds."""
    is_due: bool = False
    """Whether the condition is true."""
    conditions: Sequence[ComparisonFacts] = ()
    """The comparisons whose values were measured."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A condition and the values that decided it.

    Args:
        condition: the condition.
        values: the measured values, by their names; a value that was not needed is missing.
    """

    condition: Condition
    values: Mapping[str, Value]

    @property
    def is_due(self) -> bool:
        """Whether the condition is true; an unknown one is not."""
        return self.condition.holds(self.values) is True

    def facts(self) -> ConditionFacts:
        """Return for the outcome whether a run is due, each value with its limits, and which comparisons hold.

        Comparisons of values that were not needed are omitted.
        """
        triggers: dict[str, list[float | None]] = {}
        conditions: list[ComparisonFacts] = []
        for item in self.condition.comparisons():
            value = _shown(self.values.get(item.name))
            triggers.setdefault(item.name, [value]).append(item.limit)
            if item.name in self.values:
                holds = item.holds(self.values)
                conditions.append(ComparisonFacts(str(item), value, holds))
        return ConditionFacts(triggers, self.is_due, conditions)


def evaluate(condition: Condition, measures: Mapping[str, Callable[[], Value]]) -> Evaluation:
    """Measure what decides a condition.

    Args:
        condition: the condition.
        measures: a function for each name, the cheapest first. A name is measured once, and only if the names before
            it leave the condition undecided and its own comparisons can decide it.
    """
    values: dict[str, Value] = {}
    for name, measure in measures.items():
        if name in _undecided(condition, values):
            values[name] = measure()
    return Evaluation(condition, values)


def _undecided(condition: Condition, values: Mapping[str, Value]) -> set[str]:
    """Return the names of the comparisons that can still change whether a condition holds."""
    if condition.holds(values) is not None:
        return set()
    if isinstance(condition, Comparison):
        return {condition.name}
    return {name for part in condition.parts for name in _undecided(part, values)}


def _shown(value: Value) -> float | None:
    number = value.number if isinstance(value, AtLeast) else value
    return None if number == math.inf else number


def parse_condition(
    text: str, quantities: Mapping[str, Quantity], *, option: Option | str, example: str
) -> Condition:
    """Parse a condition.

    Args:
        text: the condition.
        quantities: the names that it may contain.
        option: the option or the setting that contains it, for messages.
        example: a condition, for messages.

    Raises:
        InvalidRequestError: the text is not such a condition, is too long or is nested too deep.
    """
    hint = f"write it as '{example}'; the names are {', '.join(quantities)}"
    return _Parser(text, quantities, noun=f"the condition of {option}", hint=hint).whole()


class _Parser(LogicParser[Condition]):
    """Reads the comparisons of conditions."""

    tokens = _TOKEN
    error = InvalidRequestError
    most_characters = 4096

    def __init__(
        self, text: str, quantities: Mapping[str, Quantity], *, noun: str, hint: str
    ) -> None:
        super().__init__(text, noun=noun, hint=hint)
        self._quantities = quantities

    def _any_of(self, parts: Sequence[Condition]) -> Condition:
        return AnyOf(tuple(parts))

    def _all_of(self, parts: Sequence[Condition]) -> Condition:
        return AllOf(tuple(parts))

    def _not(self, part: Condition) -> Condition:
        return part.negated()

    def _condition(self) -> Condition:
        start, name = self._next.start, self._next.text
        if self._next.kind != "word" or self._next.word in _KEYWORDS:
            self._fail("a name, not or (")
        if name not in self._quantities:
            meant = did_you_mean(name, self._quantities)
            self._fail_at(start, f"nothing that is measured is named {name}", meant)
        self._take()
        if self._next.word not in _SIGNS:
            self._fail(f"one of {' '.join(_COMPARE)}")
        start, sign = self._next.start, _SIGNS[self._take().word]
        quantity = self._quantities[name]
        if sign in {"=", "!="} and not quantity.is_count:
            self._fail_at(start, f"{name} is not a count; compare it by >, >=, < or <=")
        start, written = self._next.start, self._limit(name)
        try:
            limit = quantity.parse(written)
        except InvalidRequestError as error:
            self._fail_at(start, error.message, error.hint)
        if limit is None:
            self._fail_at(start, f"{written!r} is not a number of {name}")
        return Comparison(name, sign, limit, written)

    def _limit(self, name: str) -> str:
        """Read a number with its unit, which a space may separate."""
        if self._next.kind != "quantity":
            self._fail(f"a limit of {name}")
        written = self._take().text
        if self._next.kind == "word" and self._next.word not in _KEYWORDS | self._quantities.keys():
            written += self._take().text
        return written
