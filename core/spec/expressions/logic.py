"""What the grammars of row filters and of conditions have in common: and, or, not and parentheses.

::

    expression  ::= conjunction ("or" conjunction)*
    conjunction ::= negation ("and" negation)*
    negation    ::= "not"* ("(" expression ")" | condition)

A subclass of `LogicParser` adds its tokens, its conditions and what the parser builds from them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NoReturn, TypeVar

from lake.core.base.errors import LakeError

T = TypeVar("T")

_MAX_NESTING = 32
# A message quotes this many characters of an expression.
SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Token:
    """A part of an expression's text.

    Args:
        kind: the name of its group in the pattern of tokens; ``end`` after the last token.
        text: the token as written.
        start: the index of its first character.
    """

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """The token in lower case if it may be a keyword or sign; empty for quoted names and values."""
        return self.text.lower() if self.kind in {"word", "sign"} else ""


class LogicParser(ABC, Generic[T]):
    """Reads an expression from left to right, one token ahead.

    Args:
        text: the expression.
        noun: what the expression is, for messages.
        hint: how such an expression is written, for messages.
    """

    # The groups ``space``, ``word`` and ``sign`` are read here; parentheses are signs.
    tokens: ClassVar[re.Pattern[str]]
    error: ClassVar[type[LakeError]]
    most_characters: ClassVar[int]

    def __init__(self, text: str, *, noun: str, hint: str) -> None:
        if len(text) > self.most_characters:
            raise self.error(
                f"{noun} has {len(text)} characters; at most {self.most_characters} are read"
            )
        self._text = text
        self._noun = noun
        self._hint = hint
        self._nesting = 0
        self._next = self._scan(0)

    def whole(self) -> T:
        """Return what the whole text means.

        Raises:
            LakeError: the text is not such an expression, or is nested too deep; an `error` of the subclass.
        """
        found = self._expression()
        if self._next.kind != "end":
            self._fail("and, or or the end")
        return found

    @abstractmethod
    def _condition(self) -> T:
        """Read a condition that contains no and, or, not or parentheses around it."""

    @abstractmethod
    def _any_of(self, parts: Sequence[T]) -> T:
        """Return the expression of which one part must be true."""

    @abstractmethod
    def _all_of(self, parts: Sequence[T]) -> T:
        """Return the expression of which all parts must be true."""

    @abstractmethod
    def _not(self, part: T) -> T:
        """Return the negation of an expression."""

    # Tokens

    def _scan(self, start: int) -> Token:
        while start < len(self._text):
            found = self.tokens.match(self._text, start)
            if found is None:
                self._fail_at(start, self._unreadable(start))
            if found.lastgroup != "space":
                return Token(str(found.lastgroup), found[0], start)
            start = found.end()
        return Token("end", "", len(self._text))

    def _unreadable(self, start: int) -> str:
        """Return why no token begins at a character."""
        return f"{self._text[start]!r} is not valid here"

    def _take(self) -> Token:
        token = self._next
        self._next = self._scan(token.start + len(token.text))
        return token

    def _skip(self, word: str) -> bool:
        """Take the next token if it is this keyword or sign."""
        if self._next.word != word:
            return False
        self._take()
        return True

    def _require(self, word: str) -> None:
        if not self._skip(word):
            self._fail(word)

    def _fail(self, expected: str) -> NoReturn:
        self._fail_at(self._next.start, f"expected {expected}")

    def _fail_at(self, start: int, reason: str, hint: str | None = None) -> NoReturn:
        rest = self._text[start : start + SHOWN_CHARACTERS].strip()
        where = f"at character {start + 1}: {rest!r}" if rest else "at its end"
        raise self.error(f"cannot read {self._noun} {where}: {reason}", hint=hint or self._hint)

    # Expressions

    def _expression(self) -> T:
        parts = [self._conjunction()]
        while self._skip("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else self._any_of(parts)

    def _conjunction(self) -> T:
        parts = [self._negation()]
        while self._skip("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else self._all_of(parts)

    def _negation(self) -> T:
        negated = False
        while self._skip("not"):
            negated = not negated
        found = self._in_parentheses() if self._next.word == "(" else self._condition()
        return self._not(found) if negated else found

    def _in_parentheses(self) -> T:
        if self._nesting == _MAX_NESTING:
            raise self.error(f"{self._noun} nests more than {_MAX_NESTING} parentheses")
        self._nesting += 1
        self._take()
        found = self._expression()
        self._require(")")
        self._nesting -= 1
        return found
