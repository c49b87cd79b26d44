"""Infer the type of a column of strings from all of its rows.

A type is chosen only if it preserves every value: numbers with leading zeros and integers beyond 64 bits remain
text, and so do integers too large for a double in a column that also contains fractions.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.data.sources.text_forms import PLAIN, TextForms
from lake.core.data.sources.text_values import tidied

_LEADING_ZERO = r"^[+-]?0\d"
_LONG_INTEGER = r"^[+-]?\d{16,}$"
_DIGIT = r"\d"
_EXACT_IN_DOUBLE = 2**53
_FIRST = 32


class InferredType(Enum):
    """The inferred types; the values are Arrow types."""

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
        return pa.int64() if self is InferredType.LARGE_INTEGER else self.value


# Tried in this order; the first that accepts all values of a block is the type of the block.
_NARROW_TO_WIDE = (
    InferredType.BOOLEAN,
    InferredType.INTEGER,
    InferredType.FLOATING,
    InferredType.DATE,
    InferredType.TIMESTAMP,
    InferredType.ZONED_TIMESTAMP,
)
_JOINS = {
    frozenset({InferredType.INTEGER, InferredType.LARGE_INTEGER}): InferredType.LARGE_INTEGER,
    frozenset({InferredType.INTEGER, InferredType.FLOATING}): InferredType.FLOATING,
    frozenset({InferredType.DATE, InferredType.TIMESTAMP}): InferredType.TIMESTAMP,
}
_NUMBERS = (InferredType.INTEGER, InferredType.FLOATING)
TIMES = (InferredType.TIMESTAMP, InferredType.ZONED_TIMESTAMP, InferredType.DATE)


def joined(first: InferredType, second: InferredType) -> InferredType:
    """Return the narrowest type for the values of both."""
    if first is second or second is InferredType.NOTHING:
        return first
    if first is InferredType.NOTHING:
        return second
    return _JOINS.get(frozenset({first, second}), InferredType.TEXT)


def infer_type(texts: pa.Array, forms: TextForms = PLAIN) -> InferredType:
    """Return the narrowest type for all of the strings, which have numbers and dates in the given forms."""
    values = tidied(texts, forms.nulls).drop_null()
    if not len(values):
        # Blank strings and words for NULL do not matter, unless the column is text.
        return InferredType.NOTHING
    numbers, dates = forms.plain_numbers(values), _iso_dates(values, forms)
    for inferred in _NARROW_TO_WIDE:
        written = dates if inferred in TIMES else numbers if inferred in _NUMBERS else values
        if written is not None and _takes(inferred, written):
            return _sized(written) if inferred is InferredType.INTEGER else inferred
    return InferredType.TEXT


def _iso_dates(values: pa.Array, forms: TextForms) -> pa.Array | None:
    """Return dates in ISO 8601; None if some values are not dates in the given forms."""
    try:
        forms.iso_dates(values.slice(0, _FIRST))
        return forms.iso_dates(values)
    except ValueError:
        return None


def _takes(inferred: InferredType, values: pa.Array) -> bool:
    if inferred is InferredType.BOOLEAN:
        if not _casts(inferred, values):
            return False
        words = pc.is_in(pc.utf8_lower(values), value_set=pa.array(["true", "false"]))
        return bool(pc.all(words).as_py())
    if not _casts(inferred, values):
        return False
    if inferred in {InferredType.INTEGER, InferredType.FLOATING} and _any(values, _LEADING_ZERO):
        return False
    return inferred is not InferredType.FLOATING or (
        _any(values, _DIGIT) and not _any(values, _LONG_INTEGER)
    )


def _casts(inferred: InferredType, values: pa.Array) -> bool:
    try:
        # A failing cast is slow for every invalid value, but most types fail on the first few values.
        values.slice(0, _FIRST).cast(inferred.arrow)
        values.cast(inferred.arrow)
    except pa.ArrowInvalid:
        return False
    return True


def _any(values: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _sized(values: pa.Array) -> InferredType:
    extremes = pc.min_max(values.cast(pa.int64())).as_py()
    small = max(abs(extremes["min"]), abs(extremes["max"])) <= _EXACT_IN_DOUBLE
    return InferredType.INTEGER if small else InferredType.LARGE_INTEGER
