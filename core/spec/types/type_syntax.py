"""The syntax of columns as users write them: ``id long not null`` and ``tags list<struct<a: int, b: string>>``.

Types have the names of Iceberg's specification; the names that Spark, Trino and Flink use for them are accepted too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lake.core.base.errors import InvalidRequestError

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`)|(?P<text>'(?:[^']|'')*')|(?P<word>[^\s<>(),:'"`\[\]]+)"""
    r"""|(?P<mark>[<>(),:\[\]]))"""
)
_PLAIN: dict[str, Callable[[], IcebergType]] = {
    **dict.fromkeys(("boolean", "bool"), BooleanType),
    **dict.fromkeys(("int", "integer"), IntegerType),
    **dict.fromkeys(("long", "bigint"), LongType),
    **dict.fromkeys(("float", "real"), FloatType),
    "double": DoubleType,
    "date": DateType,
    "time": TimeType,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), TimestampType),
    **dict.fromkeys(("timestamptz", "timestamp_ltz"), TimestamptzType),
    "timestamp_ns": TimestampNanoType,
    "timestamptz_ns": TimestamptzNanoType,
    **dict.fromkeys(("string", "varchar", "text"), StringType),
    "uuid": UUIDType,
    **dict.fromkeys(("binary", "varbinary"), BinaryType),
    "unknown": UnknownType,
}
_LISTS = frozenset({"list", "array"})
_MOST_DIGITS = 38
_DEEPEST = 50
_LONGEST = 100_000
_LARGEST_FIXED = 2**31 - 1
_SHOWN = 80
_HINT = "write it as: id long not null, tags list<string>, place struct<x: double, y: double>"


def parse_columns(texts: list[str]) -> Schema:
    """Parse columns such as ``id long not null``, one or several with commas in a text; their ids are placeholders.

    Raises:
        InvalidRequestError: a text does not contain columns, or two columns have one name.
    """
    ids = count(1)
    fields = [field for text in texts for field in _Parser(text, lambda: next(ids)).columns()]
    names = [item.name for item in fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequestError(f"two columns have the name {name}")
    try:
        return Schema(*fields)
    except ValueError as error:
        raise InvalidRequestError(f"not columns of a table: {error}") from error


def parse_type(text: str) -> IcebergType:
    """Parse a type such as ``decimal(10, 2)``; the ids of nested fields are placeholders.

    Raises:
        InvalidRequestError: the text is not a type.
    """
    ids = count(1)
    parser = _Parser(text, lambda: next(ids))
    found = parser.type(0)
    parser.end()
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


class _Parser:
    """A parser by recursive descent of columns or one type."""

    def __init__(self, text: str, new_id: Callable[[], int]) -> None:
        self._text = text
        self._new_id = new_id
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> list[_Token]:
        found, position, text = [], 0, self._text.rstrip()
        if len(text) > _LONGEST:
            raise self._wrong("it is too long")
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong(f"{text[position : position + 10].strip()!r} was not expected")
            kind = match.lastgroup or ""
            found.append(_Token(kind, match[kind]))
            position = match.end()
        return found

    def _wrong(self, problem: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"not a column or type: {self._text[:_SHOWN]!r}: {problem}", hint=_HINT
        )

    def _next(self, wanted: str = "") -> _Token:
        if self._at >= len(self._tokens):
            raise self._wrong(f"{wanted or 'a type'} is missing at its end")
        token = self._tokens[self._at]
        self._at += 1
        if wanted and token.text != wanted:
            raise self._wrong(f"{wanted!r} was expected instead of {token.text!r}")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at].text.lower() if self._at < len(self._tokens) else ""

    def _take(self, text: str) -> bool:
        found = self._peek() == text
        self._at += found
        return found

    def end(self) -> None:
        """Check that nothing follows."""
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at].text!r} was not expected")

    def columns(self) -> list[NestedField]:
        """Parse the whole text as columns that are separated by commas."""
        fields = [self._field(0)]
        while self._take(","):
            fields.append(self._field(0))
        self.end()
        return fields

    def _field(self, depth: int) -> NestedField:
        field_id = self._new_id()
        token = self._next()
        if token.kind not in {"name", "word"}:
            raise self._wrong(f"a name was expected instead of {token.text!r}")
        name = token.text
        if token.kind == "name":
            quote = name[0]
            name = name[1:-1].replace(quote * 2, quote)
        if not name or not name.isprintable():
            raise self._wrong("a column has no printable name")
        self._take(":")
        kind = self.type(depth)
        required = self._not_null()
        doc = None
        if self._take("comment"):
            text = self._next()
            if text.kind != "text":
                raise self._wrong("a comment is a text in single quotes")
            doc = text.text[1:-1].replace("''", "'")
        return NestedField(field_id, name, kind, required=required, doc=doc)

    def _not_null(self) -> bool:
        if self._take("not"):
            if not self._take("null"):
                raise self._wrong("'null' is missing after 'not'")
            return True
        self._take("null")
        return False

    def type(self, depth: int) -> IcebergType:
        """Parse a type."""
        if depth > _DEEPEST:
            raise self._wrong("it is nested too deeply")
        token = self._next()
        word = token.text.lower()
        if token.kind != "word":
            raise self._wrong(f"a type was expected instead of {token.text!r}")
        if word in _PLAIN:
            if word == "varchar" and self._take("("):
                self._number()
                self._next(")")
            return _PLAIN[word]()
        if word in _LISTS:
            return self._list(depth)
        if word == "map":
            return self._map(depth)
        if word in {"struct", "row"}:
            return self._struct(depth)
        if word in {"decimal", "numeric"}:
            return self._decimal()
        if word == "fixed":
            return self._fixed()
        raise self._wrong(f"{token.text} is not a type that lake knows")

    def _list(self, depth: int) -> ListType:
        element_id = self._new_id()
        self._next("<")
        element = self.type(depth + 1)
        required = self._not_null()
        self._next(">")
        return ListType(element_id, element, required)

    def _map(self, depth: int) -> MapType:
        key_id, value_id = self._new_id(), self._new_id()
        self._next("<")
        key = self.type(depth + 1)
        self._not_null()
        self._next(",")
        value = self.type(depth + 1)
        required = self._not_null()
        self._next(">")
        return MapType(key_id, key, value_id, value, required)

    def _struct(self, depth: int) -> StructType:
        self._next("<")
        fields = [self._field(depth + 1)]
        while self._take(","):
            fields.append(self._field(depth + 1))
        self._next(">")
        names = [item.name for item in fields]
        if len(set(names)) < len(names):
            raise self._wrong("two fields of a struct have one name")
        return StructType(*fields)

    def _decimal(self) -> DecimalType:
        self._next("(")
        precision = self._number()
        scale = self._number() if self._take(",") else 0
        self._next(")")
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise self._wrong(
                f"a decimal has 1 to {_MOST_DIGITS} digits, of which SCALE are decimals"
            )
        return DecimalType(precision, scale)

    def _fixed(self) -> FixedType:
        close = {"(": ")", "[": "]"}.get(self._next().text)
        if close is None:
            raise self._wrong("write it as fixed(16)")
        length = self._number()
        self._next(close)
        if not 1 <= length <= _LARGEST_FIXED:
            raise self._wrong("the length is out of range")
        return FixedType(length)

    def _number(self) -> int:
        token = self._next()
        if not re.fullmatch(r"[0-9]{1,10}", token.text):
            raise self._wrong(f"a number was expected instead of {token.text!r}")
        return int(token.text)
