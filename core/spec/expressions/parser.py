"""The syntax of row filters: SQL conditions on one column each, combined with and, or and not.

::

    condition  ::= "true" | "false" | predicate
    predicate  ::= column | column comparison value | value comparison column
                 | column ["not"] "in" "(" value ("," value)* ")"
                 | column ["not"] "between" value "and" value
                 | column ["not"] "like" text ["escape" text]
                 | column "is" ["not"] ("null" | "nan" | "true" | "false" | "distinct" "from" value)
    value      ::= number | text | bytes | "true" | "false" | "null" | type text
    type       ::= "date" | "time" | "timestamp" | "timestamptz" | "timestamp_ntz" | "timestamp_ltz"
    comparison ::= "=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">=" | "<=>"
    column     ::= name ("." name)*

Conditions are combined as in `lake.core.spec.expressions.logic`. Names may be bare, in ``"…"`` or in backquotes;
texts are in ``'…'``; a quote inside is doubled. The grammar contains PyIceberg's (`pyiceberg.expressions.parser`),
and the result consists of its predicates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    Not,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DecimalLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
)

from lake.core.base.errors import BadInputError
from lake.core.spec.expressions.like import ESCAPE, canonical, escaped, literal_prefix, wildcards
from lake.core.spec.expressions.literals import TYPE_NAMES, typed_literal
from lake.core.spec.expressions.logic import SHOWN_CHARACTERS, LogicParser, Token
from lake.core.spec.expressions.predicates import UNBOUND_CLASSES

_MAX_DIGITS = 400
_A_VALUE = "a value"
_AFTER_COLUMN = "=, <>, <, <=, >, >=, <=>, is, in, like, between, and, or or the end"
_HINT = (
    "Write filters as in: amount >= 10.5 and (country in ('DE', 'FR') or name like 'A%') "
    "and deleted_at is null. Text is in single quotes; names with characters other than letters, "
    "digits and _ are in double quotes."
)

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ )
    | (?P<number> [+-]? (?: [0-9]+ (?: \. [0-9]* )? | \. [0-9]+ ) (?: e [+-]? [0-9]+ )? (?! [\w.$] ) )
    | (?P<text> ' (?: [^'] | '' )* ' )
    | (?P<unicode> u & ' (?: [^'] | '' )* ' )
    | (?P<bytes> x ' [^']* ' )
    | (?P<quoted> " (?: [^"] | "" )* " | ` (?: [^`] | `` )* ` )
    | (?P<word> [^\W\d] [\w$]* )
    | (?P<sign> <=> | <= | >= | <> | != | == | [=<>(),.] )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_BARE_TIME = re.compile(
    r"(?<![\w.-])\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_UNICODE_ESCAPE = re.compile(r"\\(?:(\\)|([0-9a-f]{4})|\+([0-9a-f]{6}))|\\", re.IGNORECASE)
_NO_NULL = "a comparison with null is never true; write: is null"
_KEYWORDS = frozenset({"and", "between", "false", "in", "is", "like", "not", "null", "or", "true"})
_TEXTS = frozenset({"text", "unicode"})
_NO_NUMBERS = frozenset({"inf", "infinity", "nan"})

_COMPARISONS = {
    "=": "eq",
    "==": "eq",
    "<>": "not-eq",
    "!=": "not-eq",
    "<": "lt",
    "<=": "lt-eq",
    ">": "gt",
    ">=": "gt-eq",
    "<=>": "",
}
# ``5 < x`` is ``x > 5``.
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Unknown(BooleanExpression):
    """A condition that is neither TRUE nor FALSE for any row, and nor is its negation: a comparison with NULL."""

    def __invert__(self) -> Unknown:
        return self


def parse_filter(text: str) -> BooleanExpression:
    """Parse a filter; its columns are not bound to a schema.

    Raises:
        BadInputError: the text is not a filter, is too long or is nested too deep.
    """
    try:
        return _Parser(text, noun="the filter", hint=_HINT).whole()
    except BadInputError as error:
        if found := _BARE_TIME.search(_QUOTED.sub("", text)):
            hint = f"Dates and times are in single quotes: '{found[0]}'."
            raise BadInputError(error.message, hint=hint) from error
        raise


class _Parser(LogicParser[BooleanExpression]):
    """Reads the conditions of filters."""

    tokens = _TOKEN
    error = BadInputError
    most_characters = 64 * 1024

    def _unreadable(self, start: int) -> str:
        character = self._text[start]
        if character in "'\"`":
            return f"this {character} has no closing {character}"
        if character in "+-.0123456789":
            return "this is not a number"
        return f"{character!r} is not valid in a filter"

    # PyIceberg combines several parts as a balanced tree, so that long filters nest only a little.

    def _any_of(self, parts: Sequence[BooleanExpression]) -> BooleanExpression:
        return Or(*parts)

    def _all_of(self, parts: Sequence[BooleanExpression]) -> BooleanExpression:
        return And(*parts)

    def _not(self, part: BooleanExpression) -> BooleanExpression:
        return Not(part)

    # Conditions

    def _condition(self) -> BooleanExpression:
        token = self._next
        if token.kind == "quoted" or (
            token.kind == "word" and token.word not in _KEYWORDS and self._typed() is None
        ):
            return self._predicate(self._column())
        value = self._value("a column, a value, not or (")
        sign = self._comparison()
        if sign is None:
            if isinstance(value, BooleanLiteral):
                return AlwaysTrue() if value.value else AlwaysFalse()
            self._fail("a comparison of this value with a column")
        if value is None:
            self._fail_at(token.start, _NO_NULL)
        return _comparison(self._column(), _MIRRORED.get(sign, sign), value)

    def _predicate(self, column: Reference) -> BooleanExpression:
        sign = self._comparison()
        if sign is not None:
            return self._compared(column, sign)
        if self._skip("is"):
            return self._is(column)
        negated = self._skip("not")
        if self._skip("in"):
            found = self._in(column)
        elif self._skip("like"):
            found = self._like(column)
        elif self._skip("between"):
            found = self._between(column)
        elif negated:
            self._fail("in, like or between")
        elif self._next.word == "(":
            self._fail_at(self._next.start, "functions are not supported")
        elif self._ends_condition():
            # A boolean column is a condition by itself.
            return _predicate("eq", column, BooleanLiteral(True))  # noqa: FBT003
        else:
            self._fail_after(column)
        return Not(found) if negated else found

    def _fail_after(self, column: Reference) -> NoReturn:
        """Fail at what follows a column; two words are often one name that lacks its quotes."""
        token = self._next
        hint = _HINT
        if token.kind == "word":
            name = f'"{column.name} {token.text}"'
            rest = self._text[token.start + len(token.text) :].strip()[:SHOWN_CHARACTERS]
            hint = f"if it is one name, quote it: {name} {rest}".rstrip()
        self._fail_at(token.start, f"expected {_AFTER_COLUMN}", hint)

    def _ends_condition(self) -> bool:
        return self._next.kind == "end" or self._next.word in {"and", "or", ")"}

    def _comparison(self) -> str | None:
        return self._take().word if self._next.word in _COMPARISONS else None

    def _compared(self, column: Reference, sign: str) -> BooleanExpression:
        start = self._next.start
        value = self._value(_A_VALUE)
        if value is None and sign == "<=>":
            return _predicate("is-null", column)
        if value is None:
            self._fail_at(start, _NO_NULL)
        return _comparison(column, sign, value)

    def _is(self, column: Reference) -> BooleanExpression:
        negated = self._skip("not")
        found: BooleanExpression
        if self._skip("null"):
            found = _predicate("is-null", column)
        elif self._skip("nan"):
            found = _predicate("is-nan", column)
        elif self._next.word in {"true", "false"}:
            wanted = BooleanLiteral(self._take().word == "true")
            found = _comparison(column, "<=>", wanted)
        elif self._skip("distinct"):
            self._require("from")
            found = Not(self._compared(column, "<=>"))
        else:
            self._fail("null, nan, true, false or distinct from")
        return Not(found) if negated else found

    def _in(self, column: Reference) -> BooleanExpression:
        self._require("(")
        values = [self._value(_A_VALUE)]
        while self._skip(","):
            values.append(self._value(_A_VALUE))
        self._require(")")
        known = _predicate("in", column, [value for value in values if value is not None])
        # A value that equals none of the values may still equal the NULL: the result is unknown.
        return Or(known, Unknown()) if None in values else known

    def _like(self, column: Reference) -> BooleanExpression:
        start = self._next.start
        pattern = self._text_value("a pattern in single quotes")
        escape = ESCAPE
        if self._skip("escape"):
            escape = self._text_value("the escape in single quotes")
        try:
            return _matching(column, canonical(pattern, escape))
        except ValueError as error:
            self._fail_at(start, str(error))

    def _between(self, column: Reference) -> BooleanExpression:
        limits = [self._compared(column, ">=")]
        self._require("and")
        limits.append(self._compared(column, "<="))
        return And(*limits)

    # Columns and values

    def _column(self) -> Reference:
        names = [self._name()]
        while self._skip("."):
            names.append(self._name())
        # Full names are unique, whether a dot is part of a name or separates two names.
        return Reference(".".join(names))

    def _name(self) -> str:
        token = self._next
        if token.kind == "quoted" and len(token.text) > len('""'):
            quote = token.text[0]
            return self._take().text[1:-1].replace(quote * 2, quote)
        if token.kind != "word":
            self._fail("the name of a column")
        if token.word in _KEYWORDS:
            self._fail_at(token.start, f'a column of this name is written "{token.text}"')
        return self._take().text

    def _text_value(self, expected: str) -> str:
        value = self._value(expected) if self._next.kind in _TEXTS else None
        if not isinstance(value, StringLiteral):
            self._fail(expected)
        return value.value

    def _value(self, expected: str) -> Literal[Any] | None:
        """Read a value; None for NULL."""
        token = self._next
        if token.word == "null":
            self._take()
            return None
        if token.word in {"true", "false"}:
            return BooleanLiteral(self._take().word == "true")
        if token.word in _NO_NUMBERS:
            self._fail_at(token.start, "write: is nan, or 'Infinity' or '-Infinity' in quotes")
        text = self._typed()
        read = _VALUES.get(token.kind if text is None else text.kind)
        if read is None and token.kind in {"word", "quoted"} and expected == _A_VALUE:
            meant = token.text.strip('"`').replace("'", "''")
            hint = f"text is in single quotes: '{meant}'; two columns cannot be compared"
            self._fail_at(token.start, f"expected {expected}", hint)
        if read is None:
            self._fail(expected)
        try:
            value = read((text or token).text)
            if text is not None:
                value = typed_literal(token.word, value.value)
        except (ValueError, ArithmeticError) as error:
            self._fail_at(token.start, str(error))
        self._take()
        if text is not None:
            self._take()
        return value

    def _typed(self) -> Token | None:
        """Return the text after the name of a type, which is next; None if something else is next."""
        token = self._next
        if token.word not in TYPE_NAMES:
            return None
        text = self._scan(token.start + len(token.text))
        return text if text.kind in _TEXTS else None


def _predicate(op: str, column: Reference, *values: Any) -> BooleanExpression:
    predicate: BooleanExpression = UNBOUND_CLASSES[op](column, *values)
    return predicate


def _comparison(column: Reference, sign: str, value: Literal[Any]) -> BooleanExpression:
    if sign == "<=>":
        return And(_predicate("not-null", column), _predicate("eq", column, value))
    return _predicate(_COMPARISONS[sign], column, value)


def _matching(column: Reference, pattern: str) -> BooleanExpression:
    """Return the predicate for a canonical LIKE pattern that prunes the most files."""
    start, others = literal_prefix(pattern), wildcards(pattern)
    if not others:
        return _predicate("eq", column, StringLiteral(start))
    if set(others) == {"%"} and pattern == escaped(start) + "%" * len(others):
        return _predicate("starts-with", column, StringLiteral(start))
    return _predicate("like", column, StringLiteral(pattern))


def _number(text: str) -> Literal[Any]:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has at most {_MAX_DIGITS} digits")
    if set(text) <= set("+-0123456789"):
        return LongLiteral(int(text))
    return DecimalLiteral(_decimal(text))


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError("the exponent has too many digits") from error


def _text(text: str) -> Literal[Any]:
    return StringLiteral(text[1:-1].replace("''", "'"))


def _unicode(text: str) -> Literal[Any]:
    """Read SQL's ``U&'…'``, in which a backslash precedes 4 hexadecimal digits, or + and 6."""

    def character(found: re.Match[str]) -> str:
        number = found[2] or found[3]
        if not number and not found[1]:
            raise ValueError("in U&'…' a backslash must precede 4 hexadecimal digits, or + and 6")
        return chr(int(number, 16)) if number else "\\"

    return StringLiteral(_UNICODE_ESCAPE.sub(character, _text(text[2:]).value))


def _bytes(text: str) -> Literal[Any]:
    digits = text[2:-1]
    if re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", digits) is None:
        raise ValueError("bytes are pairs of hexadecimal digits, as in X'00FF'")
    return BinaryLiteral(bytes.fromhex(digits))


_VALUES: Mapping[str, Callable[[str], Literal[Any]]] = {
    "number": _number,
    "text": _text,
    "unicode": _unicode,
    "bytes": _bytes,
}
