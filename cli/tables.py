"""Tables for a terminal: no number is cut, and no column is left out without a mark.

Texts are shortened with an ellipsis where a line is too narrow. If that is not enough, columns in the middle are
left out, an ellipsis stands in their place, and a line below the table says how many are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from lake.core.plain import base64_text
from lake.core.redaction import one_line

ELLIPSIS = "…"
_RULE = "─"
NULL = "NULL"
_GAP = "  "
# Texts are not shortened below this many cells.
_SHORT_TEXT = 12
# Identifiers up to this length are never shortened.
_LONG_IDENTIFIER = 40
_NAME, _TYPE, _MARK = "bold", "dim", "dim italic"


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it is drawn.

    Args:
        name: the head of the column.
        cells: a text for each row; None for NULL.
        numeric: whether the cells are aligned at their right end.
        whole: whether no cell may be shortened: numbers, times and identifiers.
        type: the column's type, shown below its name; empty if unknown.
    """

    name: str
    cells: Sequence[str | None]
    numeric: bool = False
    whole: bool = False
    type: str = ""
    width: int = field(default=0)

    @property
    def natural_width(self) -> int:
        """Terminal cells that the widest text needs."""
        texts = (NULL if cell is None else cell for cell in self.cells)
        return max(map(cell_len, (self.name, self.type, *texts)), default=0)


def column(name: str, values: Sequence[Any], kind: str = "") -> Column:
    """Return a column of Python values.

    Args:
        name: the head of the column.
        values: one for each row.
        kind: the column's type as users write it; empty if unknown.
    """
    given = [value for value in values if value is not None]
    numeric = bool(given) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in given
    )
    # An identifier contains digits and separators, but no spaces between words.
    whole = numeric or not any(isinstance(value, str | Mapping | list) for value in given)
    identifiers = all(
        isinstance(value, str) and any(map(str.isdigit, value)) and " " not in value
        for value in given
    )
    cells = [None if value is None else cell(value) for value in values]
    fits = max(map(cell_len, (text or "" for text in cells)), default=0) <= _LONG_IDENTIFIER
    return Column(one_line(name), cells, numeric, whole or (identifiers and fits), one_line(kind))


def cell(value: Any) -> str:
    """Return a value as one line of text, as JSON writes it where that has a word for it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, Mapping | list | tuple):
        return one_line(json.dumps(value, default=cell, ensure_ascii=False))
    return one_line(str(value))


def draw(columns: Sequence[Column], width: int, *, every: bool = False) -> Iterator[Text]:
    """Draw columns in lines of at most `width` terminal cells.

    Args:
        columns: with as many cells each.
        width: of the terminal. A line is longer only if its first column alone does not fit.
        every: whether all columns are drawn, however long the lines become.
    """
    fitted = [replace(item, width=item.natural_width) for item in columns]
    if not every:
        fitted = _shortened(fitted, width)
        fitted = _elided(fitted, width)
    yield _line(_padded(item.name, item, _NAME) for item in fitted)
    if any(item.type for item in fitted):
        yield _line(_padded(item.type, item, _TYPE) for item in fitted)
    yield Text(_RULE * _length(fitted), style=_TYPE)
    for number in range(len(columns[0].cells) if columns else 0):
        yield _line(_cell_of(item, number) for item in fitted)
    drawn = sum(1 for item in fitted if item.name != ELLIPSIS)
    if drawn < len(columns):
        yield Text(f"{len(columns)} columns, {drawn} shown", style=_MARK)


def draw_records(columns: Sequence[Column]) -> Iterator[Text]:
    """Draw each row as a block of lines, one for each column, with nothing left out or shortened."""
    names = max((cell_len(item.name) for item in columns), default=0)
    for number in range(len(columns[0].cells) if columns else 0):
        yield Text(f"row {number + 1}", style=_TYPE)
        for item in columns:
            value = item.cells[number]
            text = Text(NULL, style=_MARK) if value is None else Text(value)
            yield Text.assemble((f"{_GAP}{set_cell_size(item.name, names)}", _NAME), _GAP, text)


def _shortened(columns: Sequence[Column], width: int) -> list[Column]:
    """Narrow columns of texts, the widest first, until the line fits or none can be narrower."""
    narrowed = list(columns)
    while _length(narrowed) > width:
        most = max((item for item in narrowed if _spare(item) > 0), key=_spare, default=None)
        if most is None:
            return narrowed
        taken = min(_spare(most), _length(narrowed) - width)
        place = next(number for number, item in enumerate(narrowed) if item is most)
        narrowed[place] = replace(most, width=most.width - taken)
    return narrowed


def _head(item: Column) -> int:
    return max(cell_len(item.name), cell_len(item.type))


def _spare(item: Column) -> int:
    return 0 if item.whole else item.width - max(_SHORT_TEXT, _head(item))


def _elided(columns: Sequence[Column], width: int) -> list[Column]:
    """Leave out columns of the middle until the line fits: first and last ones stay in turn."""
    if _length(columns) <= width or not columns:
        return list(columns)
    hole = Column(ELLIPSIS, [ELLIPSIS] * len(columns[0].cells), whole=True, width=1)
    first, last = [columns[0]], list[Column]()
    rest = list(columns[1:])
    while rest:
        from_end = len(last) < len(first)
        item = rest[-1] if from_end else rest[0]
        wider = [*first, hole, item, *last] if from_end else [*first, item, hole, *last]
        if _length(wider) > width:
            break
        if from_end:
            last.insert(0, rest.pop())
        else:
            first.append(rest.pop(0))
    return [*first, hole, *last]


def _length(columns: Sequence[Column]) -> int:
    return sum(item.width for item in columns) + len(_GAP) * max(len(columns) - 1, 0)


def _line(cells: Iterator[Text]) -> Text:
    line = Text(_GAP).join(cells)
    line.rstrip()
    return line


def _cell_of(item: Column, row: int) -> Text:
    value = item.cells[row]
    return _padded(NULL, item, _MARK) if value is None else _padded(value, item)


def _padded(text: str, item: Column, style: str = "") -> Text:
    """Return a text in the width of its column; what does not fit ends with an ellipsis."""
    if cell_len(text) > item.width:
        text = set_cell_size(text, item.width - 1).rstrip() + ELLIPSIS
    filling = " " * (item.width - cell_len(text))
    return Text(filling + text if item.numeric else text + filling, style=style)
