"""Explain why a column of a CSV file is inferred as text although most of its values are of another type."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.options import Option
from lake.core.data.sources.inference import InferredType, infer_type, joined
from lake.core.data.sources.text_forms import ISO, TextForms
from lake.core.data.sources.text_values import tidied

_SAMPLED = 50
_SHOWN = 40
# A word that no type takes, alone among values of a type, is probably one of these; compared in lower case.
_LIKELY_NULLS = frozenset(
    {
        "n/a",
        "#n/a",
        "na",
        "none",
        "nil",
        "null",
        "nan",
        "-",
        "--",
        "?",
        ".",
        "unknown",
        "missing",
        "\\n",
    }
)
# A code, such as a postal code: it is to be text.
_LEADING_ZERO = re.compile(r"0\d+")
_DATES = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d", "%d{0}%m{0}%y", "%m{0}%d{0}%y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNote:
    """Why a column is text.

    Args:
        column: the column's name.
        path: the file.
        row: the number of the row below the header, from 1, that has the first value of another type.
        value: this value.
        options: the options that would read the column as another type, each on its own; empty if there is none.
    """

    column: str
    path: str
    row: int
    value: str
    options: Sequence[str]

    @property
    def text(self) -> str:
        """The note as a sentence."""
        shown = self.value if len(self.value) <= _SHOWN else self.value[:_SHOWN] + "…"
        options = f" ({' or '.join(self.options)})" if self.options else ""
        return f"{self.column} is text because of {shown!r} in row {self.row}{options}"


def explain(
    column: pa.Array, numbers: Sequence[int], before: InferredType, forms: TextForms
) -> tuple[int, str, Sequence[str]] | None:
    """Return the row and the value that make a column text, and the options that would change it; None for real text.

    Args:
        column: texts; they are not of one type other than text, or not of the type of the texts before.
        numbers: the number of each row.
        before: the type of the texts before; NOTHING if there are none.
        forms: how the values are written.
    """
    values = tidied(column, forms.nulls)
    sample = values.drop_null().slice(0, _SAMPLED)
    is_text = infer_type(sample, forms) is InferredType.TEXT
    if is_text and (options := list(_options(sample, forms))):
        first = pc.index(values.is_valid(), pa.scalar(value=True)).as_py()
        return numbers[first], column[first].as_py(), options
    expected = before if before is not InferredType.NOTHING else _usual_type(sample, forms)
    if expected is InferredType.TEXT:
        return None
    index = _first_other(values, expected, forms)
    value = column[index].as_py()
    word = value.strip()
    if _LEADING_ZERO.fullmatch(word):
        return None
    null = [f"{Option.NULLS} {shlex.quote(word)}"] if word.lower() in _LIKELY_NULLS else []
    return numbers[index], value, null


def _usual_type(sample: pa.Array, forms: TextForms) -> InferredType:
    """Return the type of at least half of the values; TEXT if there is none."""
    kinds = Counter(_simple(infer_type(sample.slice(i, 1), forms)) for i in range(len(sample)))
    del kinds[InferredType.TEXT]
    kind, count = next(iter(kinds.most_common(1)), (InferredType.TEXT, 0))
    return kind if count * 2 >= len(sample) else InferredType.TEXT


def _simple(kind: InferredType) -> InferredType:
    return InferredType.FLOATING if kind is InferredType.INTEGER else kind


def _first_other(values: pa.Array, expected: InferredType, forms: TextForms) -> int:
    """Return the position of the first value that does not join with a type to another type than text."""
    start, end = 0, len(values)
    while end - start > 1:
        middle = (start + end) // 2
        kind = infer_type(values.slice(start, middle - start), forms)
        if joined(expected, kind) is InferredType.TEXT:
            end = middle
        else:
            start = middle
    return start


def _options(sample: pa.Array, forms: TextForms) -> Iterator[str]:
    """Yield each option by which all values of a sample are numbers or dates."""
    if forms.decimal is None:
        for decimal in (",", "."):
            other = TextForms(nulls=forms.nulls, decimal=decimal)
            if infer_type(sample, other) is not InferredType.TEXT:
                yield f"{Option.DECIMAL} {decimal}"
    texts = [text for text in sample.to_pylist() if text]
    for item in _date_formats(texts):
        known = (*(forms.date_formats or (ISO,)), item)
        other = TextForms(nulls=forms.nulls, date_formats=known)
        if infer_type(sample, other) is not InferredType.TEXT:
            yield f"{Option.DATE_FORMATS} {shlex.quote(item)}"


def _date_formats(texts: Sequence[str]) -> Iterator[str]:
    """Yield the formats that the first value may have."""
    first = texts[0] if texts else ""
    separator = next((x for x in first if x in "/.-"), None)
    if separator is None or not first[0].isdigit():
        return
    for day in _DATES:
        for time in _TIMES:
            item = day.format(separator) + time
            try:
                TextForms(date_formats=(item,)).iso_dates(pa.array([first]))
            except ValueError:
                continue
            yield item
