"""Tables for a terminal: no number is cut, and no column is left out without a mark.

A column with a type contains data; a column without one belongs to a report (see `lake.cli.cells`). Where the line is
too narrow, texts of data are shortened with an ellipsis, so that each row is one line, and texts of a report, such as
paths and reasons, take several lines. If that is not enough, columns in the middle are left out, and an ellipsis
stands in their place.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from lake.cli.cells import ELLIPSIS, INSTANT, NULL, data_cells, report_cells
from lake.core.redaction import one_line

_RULE = "─"
_GAP = "  "
# Texts are not shortened below this many cells.
_SHORT_TEXT = 12
# The same for names of columns, and for types.
_SHORT_NAME, _SHORT_TYPE = 24, 9
# A longer type does not widen its column.
_LONG_TYPE = 32
# Identifiers up to this length are never shortened.
_LONG_IDENTIFIER = 40
# Longer values are cut in a block of lines.
_LINES_OF_VALUE = 10
_NAME, _TYPE, _MARK = "bold", "dim", "dim italic"

_NUMBERS = re.compile(r"int|long|float|double|decimal\b.*")
_SHORTENED = re.compile(r"(string|binary|struct|list|map|variant|geometry|geography|unknown)\b.*")
# Counts of added and removed files and rows: "0", "+5", "+1,000 -3".
_CHANGE = re.compile(r"0|[+-][\d,]+( -[\d,]+)?")


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it is drawn.

    Args:
        name: the head of the column.
        cells: a text for each row; None for NULL.
        numeric: whether the cells are aligned at their right end.
        whole: whether no cell may be shortened: numbers, times and identifiers.
        type: the column's type, shown below its name; empty in a report.
        width: the terminal cells that the column gets; see `fit`.
    """

    name: str
    cells: Sequence[str | None]
    numeric: bool = False
    whole: bool = False
    type: str = ""
    width: int = 0

    @property
    def values_width(self) -> int:
        """Terminal cells that the widest value needs."""
        return max((cell_len(NULL if cell is None else cell) for cell in self.cells), default=0)

    @property
    def natural_width(self) -> int:
        """Terminal cells with which nothing is shortened."""
        return max(cell_len(self.name), min(cell_len(self.type), _LONG_TYPE), self.values_width)

    @property
    def least_width(self) -> int:
        """Terminal cells that the column needs at least."""
        values = self.values_width if self.whole else min(self.values_width, _SHORT_TEXT)
        names = min(cell_len(self.name), _SHORT_NAME), min(cell_len(self.type), _SHORT_TYPE)
        return max(values, *names)


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns with their widths.

    Args:
        left: the columns that are shown, up to those that were left out.
        right: the columns that are shown behind those that were left out; empty if none were.
        given: the number of all columns.
    """

    left: Sequence[Column]
    right: Sequence[Column]
    given: int

    @property
    def mark(self) -> str:
        """What is said below the table about columns that were left out; empty if none were."""
        shown = len(self.left) + len(self.right)
        return "" if shown == self.given else f"{self.given} columns, {shown} shown"

    def lines(self) -> Iterator[Text]:
        """Draw the names, the types and the rows."""
        count = len(self.left[0].cells) if self.left else 0
        shown = [*self.left, *self.right]
        if self.mark:
            hole = Column(ELLIPSIS, [ELLIPSIS] * count, width=cell_len(ELLIPSIS))
            shown.insert(len(self.left), hole)
        yield _line(_padded(item.name, item, _NAME) for item in shown)
        if any(item.type for item in shown):
            yield _line(_padded(item.type, item, _TYPE) for item in shown)
        yield Text(_RULE * (sum(item.width for item in shown) + _gaps(shown)), style=_TYPE)
        for number in range(count):
            cells = [_cell_of(item, number) for item in shown]
            for parts in zip_longest(*cells):
                yield _line(
                    part or Text(" " * item.width) for part, item in zip(parts, shown, strict=True)
                )


def column(name: str, values: Sequence[Any], kind: str = "") -> Column:
    """Return a column of JSON-ready values.

    Args:
        name: the head of the column.
        values: one for each row.
        kind: the column's type in a table of data, as users write it; empty in a report.
    """
    cells = data_cells(values, kind) if kind else report_cells(name, values)
    given = [cell for cell in cells if cell]
    if kind:
        numeric, whole = bool(_NUMBERS.fullmatch(kind)), not _SHORTENED.fullmatch(kind)
    else:
        numeric = any(value is not None for value in values) and all(
            value is None or _is_number(value) or _is_change(value) for value in values
        )
        whole = numeric
    # An identifier contains digits and separators, but no spaces between words.
    identifiers = all(
        isinstance(value, str) and any(map(str.isdigit, value)) and " " not in value
        for value in values
        if value is not None
    )
    short = max(map(cell_len, given), default=0) <= _LONG_IDENTIFIER
    times = all(INSTANT.fullmatch(str(value)) for value in values if value)
    whole = whole or (short and (identifiers or times))
    return Column(one_line(name), cells, numeric, whole, one_line(kind))


def fit(columns: Sequence[Column], width: int, *, every: bool = False) -> Layout:
    """Return a layout of columns in lines of at most `width` terminal cells.

    Args:
        columns: with as many cells each.
        width: of the terminal. A line is longer only if its first column alone does not fit.
        every: whether all columns are drawn, however long the lines become.
    """
    if every:
        width = sum(item.natural_width for item in columns) + _gaps(columns)
    left, right = _chosen(columns, width)
    shown = [*left, *right]
    hole = 0 if len(shown) == len(columns) else cell_len(ELLIPSIS) + len(_GAP)
    space = width - hole - _gaps(shown)
    # All columns that can be shortened are cut to one width, the largest that fits.
    sizes = [(item.least_width, item.natural_width) for item in shown]
    cap = bisect_right(
        range(width + 1), space, key=lambda most: sum(_clamped(*size, most) for size in sizes)
    )
    fitted = [
        replace(item, width=_clamped(*size, cap - 1))
        for item, size in zip(shown, sizes, strict=True)
    ]
    return Layout(fitted[: len(left)], fitted[len(left) :], len(columns))


def draw_records(columns: Sequence[Column], width: int) -> Iterator[Text]:
    """Draw each row as a block of lines: no column is left out, and a long value takes several lines."""
    names = min(max((cell_len(item.name) for item in columns), default=0), _SHORT_NAME)
    space = max(width - names - 2 * len(_GAP), _SHORT_TEXT)
    for number in range(len(columns[0].cells) if columns else 0):
        yield Text(f"row {number + 1}", style=_TYPE)
        for item in columns:
            value = item.cells[number]
            style = _MARK if value is None else ""
            first = _padded(item.name, replace(item, width=names, numeric=False), _NAME)
            for line in _lines_of(NULL if value is None else value, space, words=not item.type):
                yield Text.assemble(_GAP, first, _GAP, (line, style))
                first = Text(" " * names)


def _lines_of(value: str, space: int, *, words: bool) -> list[str]:
    """Return a value in lines: of whole words in a report, and without a loss of spaces in a table of data."""
    parts = textwrap.wrap(value, space, break_on_hyphens=False) if words else [value]
    lines = [line for part in parts for line in chop_cells(part, space)] or [""]
    return lines if len(lines) <= _LINES_OF_VALUE else [*lines[: _LINES_OF_VALUE - 1], ELLIPSIS]


def _clamped(least: int, natural: int, most: int) -> int:
    return max(least, min(natural, most))


def _chosen(columns: Sequence[Column], width: int) -> tuple[list[Column], list[Column]]:
    """Leave out columns of the middle until the line fits: first and last ones stay in turn."""
    if _least(columns) <= width or not columns:
        return list(columns), []
    space = width - cell_len(ELLIPSIS) - len(_GAP)
    first, last = [columns[0]], list[Column]()
    rest = list(columns[1:])
    while rest:
        from_end = len(last) < len(first)
        item = rest[-1] if from_end else rest[0]
        if _least([*first, item, *last]) > space:
            break
        if from_end:
            last.insert(0, rest.pop())
        else:
            first.append(rest.pop(0))
    return first, last


def _least(columns: Sequence[Column]) -> int:
    return sum(item.least_width for item in columns) + _gaps(columns)


def _gaps(columns: Sequence[Column]) -> int:
    return len(_GAP) * max(len(columns) - 1, 0)


def _line(cells: Iterator[Text]) -> Text:
    line = Text(_GAP).join(cells)
    line.rstrip()
    return line


def _cell_of(item: Column, row: int) -> list[Text]:
    """Return the lines of a cell: one, except for texts of a report that do not fit."""
    value = item.cells[row]
    if value is None:
        return [_padded(NULL, item, _MARK)]
    if item.type or cell_len(value) <= item.width:
        return [_padded(value, item)]
    return [_padded(line, item) for line in _folded(value, item.width)]


def _folded(value: str, width: int) -> list[str]:
    """Return the lines of a text: they end between words, or within a word that is longer than a line."""
    if cell_len(value) == len(value):
        return textwrap.wrap(value, width, break_on_hyphens=False)
    return chop_cells(value, width)


def _padded(text: str, item: Column, style: str = "") -> Text:
    """Return a text in the width of its column; what does not fit ends with an ellipsis."""
    if cell_len(text) > item.width:
        text = set_cell_size(text, item.width - 1).rstrip() + ELLIPSIS
    filling = " " * (item.width - cell_len(text))
    return Text(filling + text if item.numeric else text + filling, style=style)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_change(value: Any) -> bool:
    return isinstance(value, str) and bool(_CHANGE.fullmatch(value))
