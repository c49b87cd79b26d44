"""Typed properties: their names, defaults and allowed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lake.core.base.errors import InvalidRequestError
from lake.core.base.units import whole_number

T = TypeVar("T")
_MOST_INT = 2**31 - 1
_MOST_LONG = 2**63 - 1
# The length of a value in a message.
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A typed property of a table, a catalog or Spark.

    Args:
        name: the property's name; for a property per column, the part before the column's name.
        default: the value if the property is missing.
        parse: returns the value of a text; None if the text is not allowed.
        allowed: the allowed values, in words.
    """

    name: str
    default: T
    parse: Callable[[str], T | None]
    allowed: str

    @property
    def is_per_column(self) -> bool:
        """Whether the property exists once per column."""
        return self.name.endswith(".")

    def of(self, properties: Mapping[str, str], column: str = "") -> T:
        """Return the value in a table's properties.

        Raises:
            InvalidRequestError: the text is not allowed.
        """
        text = properties.get(self.name + column)
        return self.default if text is None else self.value(text, column)

    def is_set(self, properties: Mapping[str, str], column: str = "") -> bool:
        """Return whether the table has the property."""
        return self.name + column in properties

    def value(self, text: str, column: str = "") -> T:
        """Return the value of a text.

        Raises:
            InvalidRequestError: the text is not allowed.
        """
        found = self.parse(text.strip())
        if found is None:
            raise refused_value(self.name + column, text, self.allowed)
        return found

    def check(self, properties: Mapping[str, str]) -> None:
        """Check the value, or the values of all columns.

        Raises:
            InvalidRequestError: a text is not allowed.
        """
        for column in self.columns(properties) if self.is_per_column else [""]:
            self.of(properties, column)

    def columns(self, properties: Mapping[str, str]) -> list[str]:
        """Return the columns that have the property."""
        return [name.removeprefix(self.name) for name in properties if name.startswith(self.name)]


def refused_value(name: str, text: str, allowed: str) -> InvalidRequestError:
    """Return the error for a property with a value that is not allowed."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return InvalidRequestError(
        f"the property {name} is {shown!r}; it must be {allowed}",
        hint=f"set {name} to an allowed value, or remove it",
    )


def whole(name: str, default: int, *, least: int, most: int = _MOST_INT) -> Setting[int]:
    """Return a property that is an integer between two bounds, by default those of Java's int."""
    return Setting(name, default, _between(least, most), _bounds(least, most))


def size(name: str, default: int) -> Setting[int]:
    """Return a property that is a number of bytes above zero."""
    return whole(name, default, least=1, most=_MOST_LONG)


def optional_whole(name: str, *, least: int, most: int = _MOST_LONG) -> Setting[int | None]:
    """Return a property that is an integer and has no default."""
    return Setting(name, None, _between(least, most), _bounds(least, most))


def flag(name: str, *, default: bool) -> Setting[bool]:
    """Return a property that is true or false."""
    return Setting(name, default, _flag, "true or false")


def choice(name: str, default: str, allowed: Sequence[str]) -> Setting[str]:
    """Return a property that is one of the given words, in lower case."""
    return Setting(name, default, _among(allowed), f"one of {', '.join(allowed)}")


def optional_choice(name: str, allowed: Sequence[str]) -> Setting[str | None]:
    """Return a property that is one of the given words and has no default."""
    return Setting(name, None, _among(allowed), f"one of {', '.join(allowed)}")


def probability(name: str, default: float) -> Setting[float]:
    """Return a property that is a number between 0 and 1."""
    return Setting(name, default, _probability, "a number above 0 and below 1")


def text(name: str, default: str = "") -> Setting[str]:
    """Return a property that may be any text."""
    return Setting(name, default, str, "a text")


def optional_text(name: str) -> Setting[str | None]:
    """Return a property that may be any text and has no default."""
    return Setting(name, None, str, "a text")


def _between(least: int, most: int) -> Callable[[str], int | None]:
    def parse(found: str) -> int | None:
        number = whole_number(found)
        return number if number is not None and least <= number <= most else None

    return parse


def _bounds(least: int, most: int) -> str:
    return f"a whole number from {least} to {most}"


def _among(allowed: Sequence[str]) -> Callable[[str], str | None]:
    def parse(found: str) -> str | None:
        return found.lower() if found.lower() in allowed else None

    return parse


def _flag(found: str) -> bool | None:
    return {"true": True, "false": False}.get(found.lower())


def _probability(found: str) -> float | None:
    try:
        number = float(found)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 < number < 1 else None
