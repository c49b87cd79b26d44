"""The type of a column of texts, found over all of its rows, so that every row is read as it is written.

A type is taken only if it keeps every value: numbers with leading zeros and integers beyond 64 bits stay text,
as do integers too large for a double in a column that also holds fractions.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.sources.text_values import tidied

_LEADING_ZERO = r"^[+-]?0\d"
_LONG_INTEGER = r"^[+-]?\d{16,}$"
_DIGIT = r"\d"
_EXACT_IN_DOUBLE = 2**53
_FIRST = 32


class Kind(Enum):
    """What texts may be; the values are the Arrow types."""

    NOTHING = pa.null()
    BOOLEAN = pa.bool_()
    INTEGER = pa.int64()
    LARGE_INTEGER = "int64 that no double holds"
    FLOATING = pa.float64()
    DATE = pa.date32()
    TIMESTAMP = pa.timestamp("us")
    ZONED_TIMESTAMP = pa.timestamp("us", "UTC")
    TEXT = pa.string()

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        return pa.int64() if self is Kind.LARGE_INTEGER else self.value


# Each is tried in turn; the first that takes every value of a block is the block's.
_NARROW_TO_WIDE = (
    Kind.BOOLEAN,
    Kind.INTEGER,
    Kind.FLOATING,
    Kind.DATE,
    Kind.TIMESTAMP,
    Kind.ZONED_TIMESTAMP,
)
_JOINS = {
    frozenset({Kind.INTEGER, Kind.LARGE_INTEGER}): Kind.LARGE_INTEGER,
    frozenset({Kind.INTEGER, Kind.FLOATING}): Kind.FLOATING,
    frozenset({Kind.DATE, Kind.TIMESTAMP}): Kind.TIMESTAMP,
}
TIMES = (Kind.TIMESTAMP, Kind.ZONED_TIMESTAMP, Kind.DATE)


def joined(first: Kind, second: Kind) -> Kind:
    """Return the narrowest kind that holds the values of both."""
    if first is second or second is Kind.NOTHING:
        return first
    if first is Kind.NOTHING:
        return second
    return _JOINS.get(frozenset({first, second}), Kind.TEXT)


def kind_of(texts: pa.Array) -> Kind:
    """Return the narrowest kind that takes every one of the texts."""
    values = tidied(texts).drop_null()
    if not len(values):
        # Blank texts and words for NULL say nothing, unless the column turns out to be text.
        return Kind.NOTHING
    for kind in _NARROW_TO_WIDE:
        if _takes(kind, values):
            return _sized(values) if kind is Kind.INTEGER else kind
    return Kind.TEXT


def _takes(kind: Kind, values: pa.Array) -> bool:
    if kind is Kind.BOOLEAN:
        if not _casts(kind, values):
            return False
        words = pc.is_in(pc.utf8_lower(values), value_set=pa.array(["true", "false"]))
        return bool(pc.all(words).as_py())
    if not _casts(kind, values):
        return False
    if kind in {Kind.INTEGER, Kind.FLOATING} and _any(values, _LEADING_ZERO):
        return False
    return kind is not Kind.FLOATING or (_any(values, _DIGIT) and not _any(values, _LONG_INTEGER))


def _casts(kind: Kind, values: pa.Array) -> bool:
    try:
        # A refusal costs time for every value that is refused: most kinds fail on the first few.
        values.slice(0, _FIRST).cast(kind.arrow)
        values.cast(kind.arrow)
    except pa.ArrowInvalid:
        return False
    return True


def _any(values: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _sized(values: pa.Array) -> Kind:
    extremes = pc.min_max(values.cast(pa.int64())).as_py()
    small = max(abs(extremes["min"]), abs(extremes["max"])) <= _EXACT_IN_DOUBLE
    return Kind.INTEGER if small else Kind.LARGE_INTEGER
