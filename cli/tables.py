"""Tables for a terminal: no number is cut, and no column is left out without a mark.

A column with a type contains data; a column without one belongs to a report (see `lake.cli.cells`). Where the line is
too narrow, texts of data are shortened with an ellipsis, so that each row is one line, and texts of a report, such as
paths and reasons, take several lines. Names of a report's columns take several lines, too. If that is not enough,
columns are left out, and an ellipsis stands in their place: columns in the middle; in a report, those without numbers
before those with numbers. What is the same in each row, such as the zone of times and the folder of paths, is shown
once.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from lake.cli.cells import ELLIPSIS, INSTANT, NULL, UTC, data_cells, is_utc, report_cells
from lake.core.base.redaction import one_line

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
# Snapshot ids in narrow reports have this many digits at least.
_SNAPSHOT_ID, _LEAST_DIGITS = "snapshot_id", 8
_NAME, _TYPE, _MARK = "bold", "dim", "dim italic"

# A name of a report's column is broken behind these.
_NAME_PARTS = re.compile(r"[^_ ]+[_ ]?|[_ ]+")
_NUMBERS = re.compile(r"int|long|float|double|decimal\b.*")
_SHORTENED = re.compile(r"(string|binary|struct|list|map|variant|geometry|geography|unknown)\b.*")
# Counts of added and removed files and rows: "0", "+5", "+1,000 -3".
_CHANGE = re.compile(r"0|[+-][\d,]+( -[\d,]+)?|[\d,]+ or less")


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
        if self.type:
            names = min(cell_len(self.name), _SHORT_NAME), min(cell_len(self.type), _SHORT_TYPE)
            return max(values, *names)
        words = [*self.name_parts, *_short_words(self.cells)]
        return max(values, *(cell_len(word) for word in words))

    @property
    def name_parts(self) -> list[str]:
        """The parts of a report's column name between which it may be broken."""
        return _NAME_PARTS.findall(self.name) or [self.name]

    @property
    def head(self) -> list[str]:
        """The lines of the column's name: one, or in a report as many as its width needs."""
        lines = [""]
        for part in [self.name] if self.type else self.name_parts:
            if lines[-1] and cell_len(lines[-1] + part.rstrip()) > self.width:
                lines.append("")
            lines[-1] += part
        return [line.rstrip() for line in lines]


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns with their widths.

    Args:
        columns: those that are shown, with an ellipsis as a column where others were left out.
        given: the number of all columns.
        hidden: the number of columns that were left out.
    """

    columns: Sequence[Column]
    given: int
    hidden: int

    @property
    def mark(self) -> str:
        """What is said below the table about columns that were left out; empty if none were."""
        shown = self.given - self.hidden
        return f"{self.given} columns, {shown} shown" if self.hidden else ""

    def lines(self) -> Iterator[Text]:
        """Draw the names, the types and the rows."""
        shown = self.columns
        count = len(shown[0].cells) if shown else 0
        heads = [[_padded(line, item, _NAME) for line in item.head] for item in shown]
        yield from _rows(heads, shown)
        if any(item.type for item in shown):
            yield _line(_padded(item.type, item, _TYPE) for item in shown)
        yield Text(_RULE * (sum(item.width for item in shown) + _gaps(shown)), style=_TYPE)
        for number in range(count):
            yield from _rows([_cell_of(item, number) for item in shown], shown)


def column(name: str, values: Sequence[Any], kind: str = "", root: str = "") -> Column:
    """Return a column of JSON-ready values.

    Args:
        name: the head of the column; the zone UTC is added to it if all values are times in UTC.
        values: one for each row.
        kind: the column's type in a table of data, as users write it; empty in a report.
        root: a location; paths below it are shown relative to it.
    """
    if root:
        values = [_below(root, value) for value in values]
    utc = is_utc(values) and (not kind or kind.startswith("time"))
    write = partial(data_cells, kind=kind) if kind else report_cells
    cells = write(name, values, zone=not utc)
    zone = f" ({UTC})" if utc else ""
    name, kind = (name, kind + zone) if kind else (name + zone, kind)
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


def fit(
    columns: Sequence[Column], width: int, *, every: bool = False, first: Collection[str] = ()
) -> Layout:
    """Return a layout of columns in lines of at most `width` terminal cells.

    Args:
        columns: with as many cells each.
        width: of the terminal. A line is longer only if its first column alone does not fit.
        every: whether all columns are drawn, however long the lines become.
        first: the names of columns that are kept before all others.
    """
    if every:
        width = _natural(columns)
    if _least(columns) > width:
        columns = [_with_short_ids(item) for item in columns]
    kept = _kept(columns, width, first)
    shown = _with_holes(columns, kept)
    space = width - _gaps(shown)
    # All columns that can be shortened are cut to one width, the largest that fits.
    sizes = [(item.least_width, item.natural_width) for item in shown]
    cap = bisect_right(
        range(width + 1), space, key=lambda most: sum(_clamped(*size, most) for size in sizes)
    )
    fitted = [
        replace(item, width=_clamped(*size, cap - 1))
        for item, size in zip(shown, sizes, strict=True)
    ]
    return Layout(fitted, len(columns), len(columns) - len(kept))


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


def _kept(columns: Sequence[Column], width: int, first: Collection[str]) -> set[int]:
    """Return the places of the columns that fit: those of the greatest importance."""
    kept: set[int] = set()
    if _least(columns) <= width:
        return set(range(len(columns)))
    named = {place for place, item in enumerate(columns) if item.name in first}
    for place in _by_importance(columns, first):
        shown = _with_holes(columns, kept | {place})
        # Columns that are not important do not shorten those that are.
        if kept and (_natural if named and place not in named else _least)(shown) > width:
            break
        kept.add(place)
    return kept


def _with_short_ids(item: Column) -> Column:
    """Return a report's column of snapshot ids with as many digits as distinguish them: a prefix names a snapshot."""
    if item.type or not item.name.endswith(_SNAPSHOT_ID):
        return item
    texts = {cell for cell in item.cells if cell}
    for digits in range(_LEAST_DIGITS, max(map(len, texts), default=0)):
        if len({text[:digits] for text in texts}) == len(texts):
            return replace(item, cells=[cell and cell[:digits] + ELLIPSIS for cell in item.cells])
    return item


def _by_importance(columns: Sequence[Column], first: Collection[str]) -> list[int]:
    """Return the places of columns, the ones first that a narrow line keeps.

    The named columns precede all others. In a report, the first column and all numbers precede the others; in a table
    of data, first and last columns follow one another.
    """
    places = list(range(len(columns)))
    if any(item.type for item in columns):
        ends = [place for pair in zip(places, reversed(places), strict=True) for place in pair]
        places = list(dict.fromkeys(ends))
    else:
        places.sort(key=lambda place: place > 0 and not columns[place].numeric)
    order = {name: rank for rank, name in enumerate(first)}
    places.sort(key=lambda place: order.get(columns[place].name, len(order)))
    return places


def _with_holes(columns: Sequence[Column], kept: Collection[int]) -> list[Column]:
    """Return the kept columns in their order, with an ellipsis as a column in each place of others."""
    shown: list[Column] = []
    hole = Column(ELLIPSIS, [ELLIPSIS] * (len(columns[0].cells) if columns else 0), whole=True)
    for place, item in enumerate(columns):
        if place in kept:
            shown.append(item)
        elif not shown or shown[-1] is not hole:
            shown.append(hole)
    return shown


def _least(columns: Sequence[Column]) -> int:
    return sum(item.least_width for item in columns) + _gaps(columns)


def _natural(columns: Sequence[Column]) -> int:
    return sum(item.natural_width for item in columns) + _gaps(columns)


def _gaps(columns: Sequence[Column]) -> int:
    return len(_GAP) * max(len(columns) - 1, 0)


def _rows(cells: Sequence[Sequence[Text]], shown: Sequence[Column]) -> Iterator[Text]:
    """Draw cells side by side, in as many lines as the longest one has."""
    for parts in zip_longest(*cells):
        yield _line(part or Text(" " * item.width) for part, item in zip(parts, shown, strict=True))


def _line(cells: Iterator[Text]) -> Text:
    line = Text(_GAP).join(cells)
    line.rstrip()
    return line


def _below(root: str, value: Any) -> Any:
    """Return a path relative to a location; a value that is not a path below it as it is."""
    folder = f"{root.rstrip('/')}/"
    return value[len(folder) :] if isinstance(value, str) and value.startswith(folder) else value


def _short_words(cells: Sequence[str | None]) -> list[str]:
    """Return the words of a report's texts that are not broken: names, but no long paths."""
    words = {word for cell in cells if cell for word in cell.split()}
    return [word for word in words if cell_len(word) <= _SHORT_NAME]


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
