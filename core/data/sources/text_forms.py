"""The forms of values in text files that differ from the default: words for NULL, numbers, and dates.

Numbers and dates are rewritten to the default form, plain decimals and ISO 8601, which one parser then reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.plain import PlainData
from lake.core.base.units import directives, read_time

ISO = "iso"
# What may separate groups of three digits, besides a comma or a point: blanks and apostrophes.
_GROUPING = "'\N{RIGHT SINGLE QUOTATION MARK} \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
_TIMES = frozenset("HIMSfpXczT")
_SAMPLE = datetime(2001, 2, 23, 13, 14, 15, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForms(PlainData):
    """How values are written.

    Args:
        nulls: words that mean NULL in every column, in addition to the words that always do.
        decimal: the decimal separator of numbers, a point or a comma; other separators may then separate groups of
            three digits. None for numbers with a point and without groups.
        date_formats: formats of dates and times as in `datetime.strptime`, and ``iso``; empty for ISO 8601.

    Raises:
        InvalidRequestError: a value is not allowed.
    """

    nulls: tuple[str, ...] = ()
    decimal: str | None = None
    date_formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.decimal not in {None, ".", ","}:
            raise InvalidRequestError(
                f"{Option.DECIMAL} {self.decimal!r} is not a point or a comma"
            )
        for item in self.date_formats:
            if item != ISO:
                _check_date_format(item)

    def plain_numbers(self, column: pa.Array) -> pa.Array:
        """Return texts with plain decimals for the numbers among them; a number of another form becomes invalid."""
        if self.decimal is None:
            return column
        other = "." if self.decimal == "," else ","
        separator = f"[{_GROUPING}{other}]"
        point = re.escape(self.decimal)
        number = rf"^[+-]?(\d{{1,3}}({separator}\d{{3}})+|\d*)({point}\d*)?([eE][+-]?\d+)?$"
        digits = pc.match_substring_regex(column, r"\d")
        known = pc.or_(pc.match_substring_regex(column, number), pc.invert(digits))
        whole = pc.replace_substring_regex(column, separator, "")
        plain = pc.replace_substring(whole, self.decimal, ".")
        invalid = pc.binary_join_element_wise("?", column, "")
        return pc.if_else(known, pc.if_else(digits, plain, column), invalid)

    def iso_dates(self, column: pa.Array) -> pa.Array:
        """Return texts of dates and times in ISO 8601.

        Raises:
            ValueError: a text has none of the formats, or has several meanings.
        """
        if not self.date_formats:
            return column
        # Python's parser is exact, unlike Arrow's, which takes 31 February. Most dates occur often.
        coded = column.dictionary_encode()
        texts = [self._iso_date(text) for text in coded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(coded.indices)

    def _iso_date(self, text: str) -> str:
        found = dict(self._dates(text))
        if len(found) != 1:
            raise ValueError(f"{text} has {len(found)} meanings")
        return next(iter(found.values()))

    def _dates(self, text: str) -> Iterator[tuple[datetime, str]]:
        """Yield the text as each of the formats reads it: as a time, and as ISO 8601."""
        for item in self.date_formats:
            try:
                if item == ISO:
                    moment, written = datetime.fromisoformat(text), text
                else:
                    moment = read_time(text, item)
                    written = _written(moment, item)
            except ValueError:
                continue
            yield moment.replace(tzinfo=moment.tzinfo or UTC), written


def _written(moment: datetime, date_format: str) -> str:
    if moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    timed = _TIMES & directives(date_format)
    return moment.isoformat() if timed else moment.date().isoformat()


def _check_date_format(date_format: str) -> None:
    if "Z" in directives(date_format):
        raise InvalidRequestError(
            f"{Option.DATE_FORMATS} {date_format!r} has %Z, but names of time zones are ambiguous",
            hint="use %z, for offsets such as +01:00",
        )
    try:
        read = read_time(_SAMPLE.strftime(date_format), date_format)
    except (ValueError, re.error) as error:
        raise InvalidRequestError(
            f"{Option.DATE_FORMATS} {date_format!r} is not a format of dates: {error}",
            hint="e.g. %d.%m.%Y, or %m/%d/%Y %H:%M",
        ) from error
    if read.date() != _SAMPLE.date():
        raise InvalidRequestError(
            f"{Option.DATE_FORMATS} {date_format!r} does not contain year, month and day",
            hint="e.g. %d.%m.%Y, or %m/%d/%Y %H:%M",
        )
    if "I" in directives(date_format) and read.hour != _SAMPLE.hour:
        raise InvalidRequestError(
            f"{Option.DATE_FORMATS} {date_format!r} does not read a time as it writes it: half of the hours would be "
            "wrong",
            hint="add %p to %I, or use %H",
        )


def replaced_nulls(batch: pa.RecordBatch, nulls: Sequence[str]) -> pa.RecordBatch:
    """Return a batch of texts with NULL for each of the words."""
    words = pa.array(nulls, pa.string())
    columns = [
        pc.if_else(pc.is_in(column, value_set=words), pa.scalar(None, pa.string()), column)
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


PLAIN = TextForms()
