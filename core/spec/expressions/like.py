"""LIKE: its patterns, and the predicates ``like`` and ``not-like`` that PyIceberg lacks.

``%`` matches any characters, ``_`` matches one (a code point), and a backslash makes ``%``, ``_`` and the
backslash itself ordinary, as in Spark SQL. A pattern matches a complete text, including newlines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from typing import Literal as Choice

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from pyiceberg.expressions import BoundLiteralPredicate, LiteralPredicate

ESCAPE = "\\"
_ANY, _ONE = "%", "_"
_WILDCARDS = {_ANY: ".*", _ONE: "."}
_PARTS = re.compile(r"\\.|[%_]|[^\\%_]", re.DOTALL)


class Like(LiteralPredicate):
    """TRUE where a text matches a pattern."""

    type: Choice["like"] = Field(default="like", alias="type")  # type: ignore[assignment]

    def __invert__(self) -> NotLike:
        return NotLike(self.term, self.literal)  # type: ignore[call-arg]

    @property
    def as_bound(self) -> Any:
        """The class of the bound predicate."""
        return BoundLike


class NotLike(LiteralPredicate):
    """TRUE where a text does not match a pattern."""

    type: Choice["not-like"] = Field(default="not-like", alias="type")  # type: ignore[assignment]

    def __invert__(self) -> Like:
        return Like(self.term, self.literal)  # type: ignore[call-arg]

    @property
    def as_bound(self) -> Any:
        """The class of the bound predicate."""
        return BoundNotLike


class BoundLike(BoundLiteralPredicate):
    """`Like` on a field of a schema."""

    def __invert__(self) -> BoundNotLike:
        return BoundNotLike(self.term, self.literal)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> Any:
        """The class of the unbound predicate."""
        return Like


class BoundNotLike(BoundLiteralPredicate):
    """`NotLike` on a field of a schema."""

    def __invert__(self) -> BoundLike:
        return BoundLike(self.term, self.literal)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> Any:
        """The class of the unbound predicate."""
        return NotLike


def canonical(pattern: str, escape: str) -> str:
    """Return a pattern with the backslash as its escape.

    Args:
        pattern: the pattern as written.
        escape: the character that makes the next one ordinary.

    Raises:
        ValueError: the escape is not one character, or does not precede %, _ or itself.
    """
    if len(escape) != 1:
        raise ValueError("the escape of like must be one character")
    found = []
    rest = iter(pattern)
    for character in rest:
        if character == escape:
            ordinary = next(rest, None)
            if ordinary is None or ordinary not in {_ANY, _ONE, escape}:
                raise ValueError(
                    f"in a pattern of like {escape!r} must precede %, _ or itself, not before "
                    f"{'its end' if ordinary is None else repr(ordinary)}"
                )
            found.append(escaped(ordinary))
        else:
            found.append(character if character in _WILDCARDS else escaped(character))
    return "".join(found)


def escaped(text: str) -> str:
    """Return the pattern that matches only the given text."""
    return "".join(ESCAPE + one if one in {_ANY, _ONE, ESCAPE} else one for one in text)


def wildcards(pattern: str) -> list[str]:
    """Return a canonical pattern's wildcards in order."""
    return [part for part in _parts(pattern) if part in _WILDCARDS]


def literal_prefix(pattern: str) -> str:
    """Return the characters before a canonical pattern's first wildcard; every match starts with them."""
    prefix = []
    for part in _parts(pattern):
        if part in _WILDCARDS:
            break
        prefix.append(part[-1])
    return "".join(prefix)


def matching(texts: pa.Array, pattern: str) -> pa.BooleanArray:
    """Return which texts match a canonical pattern; NULL for NULL.

    Raises:
        pyarrow.ArrowInvalid: the pattern is too large for Arrow's regular expressions.
    """
    return pc.match_substring_regex(texts, _regular_expression(pattern))


def _parts(pattern: str) -> Iterator[str]:
    """Yield a pattern's wildcards and characters, each character with its escape if it has one."""
    return (found[0] for found in _PARTS.finditer(pattern))


def _regular_expression(pattern: str) -> str:
    # By code point, so that no character has a special meaning.
    parts = (_WILDCARDS.get(part) or f"\\x{{{ord(part[-1]):x}}}" for part in _parts(pattern))
    return rf"(?s)\A(?:{''.join(parts)})\z"
