"""The first part of the page: how many tables have each grade, a map of their bytes, and a row for each table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lake.core.base.units import counted, format_size, parse_time_ms
from lake.core.maintain.health.facts import HealthFacts
from lake.core.maintain.health.grade import BAD, DUE, GOOD, wasted
from lake.core.maintain.health.page.treemap import Rectangle, squarified
from lake.core.maintain.health.report import age, delete_files, deleted, reason, share, shown_name

_UNGRADED, _UNREADABLE = "not graded", "not readable"
# What each grade means, the worst one first.
_MEANINGS: Mapping[str, str] = {
    BAD: "a scan takes at least three times as long as it could",
    DUE: "at least one command pays",
    GOOD: "no command would make a scan noticeably faster",
    _UNGRADED: "too many files to read them beside other tables",
    _UNREADABLE: "an error; the list has the reason",
}
# Tables after the largest ones, and those with a smaller part of all bytes, share a rectangle, which is visible too.
_MOST_CELLS, _LEAST_SHARE = 120, 0.001
# The sizes for which maps are laid out, and those of letters and lines, in pixels: a browser clips what is longer.
_WIDE, _NARROW = (1180.0, 380.0), (324.0, 460.0)
_LETTER, _LINE, _MARGIN, _LEAST_LETTERS = 8.0, 21, 12, 4

# In place of a grade, for the rectangle of small tables.
OTHERS = "several"
# What is shown of a value, and what a sort compares; the fragments of the tables with a section, by the ids of rows.
_Value = tuple[object, object]
Links = Mapping[int, str]


class Count(NamedTuple):
    """The number of tables with a grade."""

    grade: str
    tables: int
    meaning: str


class Cell(NamedTuple):
    """A rectangle of a map, in percent of the map's sides, with the lines of text that fit in it."""

    place: Rectangle
    name: str
    grade: str
    size: str
    link: str | None
    lines: Sequence[str]


class Map(NamedTuple):
    """A treemap of the bytes of tables, its style class, and its height in pixels."""

    style: str
    height: float
    cells: Sequence[Cell]


class Column(NamedTuple):
    """A column of the list: its name, what it means, and for a table at a time what is shown and what is compared."""

    name: str
    meaning: str
    value: Callable[[HealthFacts, int], _Value]
    is_text: bool = False


class Line(NamedTuple):
    """A table in the list: its values as they are shown and compared, or why it could not be read."""

    name: str
    link: str | None
    grade: str
    rank: int
    values: Sequence[tuple[str, object]]
    reason: str | None


def grade_name(row: HealthFacts) -> str:
    """Return the grade of a table, or what is shown in place of it."""
    return _UNREADABLE if row.error is not None else row.grade or _UNGRADED


def counts(rows: Sequence[HealthFacts]) -> list[Count]:
    """Return the number of tables with each grade, the worst one first."""
    found = Counter(grade_name(row) for row in rows)
    return [
        Count(grade, found[grade], meaning) for grade, meaning in _MEANINGS.items() if found[grade]
    ]


def maps(rows: Sequence[HealthFacts], links: Links) -> list[Map]:
    """Return the maps for a wide and for a narrow window; none if no table has bytes."""
    sized = sorted((row for row in rows if _bytes(row) > 0), key=_bytes, reverse=True)
    total = sum(map(_bytes, sized))
    large = [row for row in sized[:_MOST_CELLS] if _bytes(row) >= _LEAST_SHARE * total]
    shown = [(_bytes(row), shown_name(row), grade_name(row), links.get(id(row))) for row in large]
    if others := len(sized) - len(large):
        name = counted(others, "smaller table")
        shown.append((total - sum(map(_bytes, large)), name, OTHERS, None))
        shown.sort(key=lambda item: item[0], reverse=True)
    sizes = {"wide": _WIDE, "narrow": _NARROW}
    return [_map(style, *size, shown) for style, size in sizes.items() if shown]


def _bytes(row: HealthFacts) -> int:
    return row.reading.bytes or 0


def _map(
    style: str,
    width: float,
    height: float,
    shown: Sequence[tuple[int, str, str, str | None]],
) -> Map:
    total = sum(size for size, *_ in shown)
    places = squarified([max(size, _LEAST_SHARE * total) for size, *_ in shown], width, height)
    cells = []
    for (size, name, grade, link), place in zip(shown, places, strict=True):
        percent = Rectangle(
            100 * place.x / width,
            100 * place.y / height,
            100 * place.width / width,
            100 * place.height / height,
        )
        text = format_size(size)
        lines = _fitting([name, f"{text} · {grade}", text], place)
        cells.append(Cell(percent, name, grade, text, link, lines))
    return Map(style, height, cells)


def _fitting(texts: Sequence[str], place: Rectangle) -> list[str]:
    """Return the name of a table, cut if it is too long, and the first one of the other texts that fits."""
    name, *others = texts
    most = int((place.width - _MARGIN) / _LETTER)
    fitting = [name if len(name) <= most else f"{name[: most - 1]}…"]
    fitting += [text for text in others if len(text) <= most][:1]
    count = int(place.height / _LINE) if most >= _LEAST_LETTERS else 0
    return fitting[:count]


def columns(rows: Sequence[HealthFacts], now_ms: int) -> list[Column]:
    """Return the columns of the list that have a value in a table."""
    return [
        column
        for column in _COLUMNS
        if any(column.value(row, now_ms)[0] for row in rows if row.error is None)
    ]


def lines_of(
    rows: Sequence[HealthFacts], shown: Sequence[Column], links: Links, now_ms: int
) -> Iterator[Line]:
    """Yield the tables of the list."""
    for row in rows:
        grade = grade_name(row)
        values = [column.value(row, now_ms) for column in shown]
        yield Line(
            shown_name(row),
            links.get(id(row)),
            grade,
            list(_MEANINGS).index(grade),
            [(_text(value), "" if key is None else key) for value, key in values],
            None if row.error is None else reason(row.error),
        )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value else ""
    return f"{value:,}" if value and isinstance(value, int) else str(value or "")


def _number(get: Callable[[HealthFacts], int | None]) -> Callable[[HealthFacts, int], _Value]:
    return lambda row, _: (get(row), get(row))


def _size(get: Callable[[HealthFacts], int | None]) -> Callable[[HealthFacts, int], _Value]:
    def value(row: HealthFacts, _: int) -> _Value:
        found = get(row)
        return format_size(found) if found else None, found

    return value


def _age(get: Callable[[HealthFacts], str | None]) -> Callable[[HealthFacts, int], _Value]:
    def value(row: HealthFacts, now_ms: int) -> _Value:
        time = get(row)
        return age(time, now_ms), None if time is None else now_ms - parse_time_ms(time)

    return value


_COLUMNS = (
    Column(
        "needs",
        "commands that pay",
        lambda row, _: (", ".join(row.needs), ", ".join(row.needs)),
        is_text=True,
    ),
    Column(
        "wasted",
        "seconds of a scan above the ideal layout",
        lambda row, _: (round(wasted(row), 2), wasted(row)),
    ),
    Column("bytes", "bytes of the live data files", _size(lambda row: row.reading.bytes)),
    Column("growth", "bytes that the last day added", _size(lambda row: row.growth_bytes)),
    Column(
        "rows", "rows of the live data files, deleted or not", _number(lambda row: row.reading.rows)
    ),
    Column("files", "live data files", _number(lambda row: row.reading.files)),
    Column(
        "small files",
        "files that a compaction would rewrite because of their size",
        lambda row, _: (share(row.reading.small_files, row.reading.files), row.reading.small_files),
    ),
    Column(
        "deleted rows",
        "rows that delete files hide",
        lambda row, _: (deleted(row), row.reading.deleted_rows_at_most),
    ),
    Column(
        "delete files",
        "live delete files",
        lambda row, _: (delete_files(row), row.reading.delete_files),
    ),
    Column("snapshots", "snapshots in the metadata file", _number(lambda row: row.snapshots)),
    Column("oldest", "age of the oldest snapshot", _age(lambda row: row.oldest_snapshot)),
    Column(
        "manifests", "manifests of the current snapshot", _number(lambda row: row.reading.manifests)
    ),
    Column("metadata", "bytes of the current metadata file", _size(lambda row: row.metadata_bytes)),
    Column("last commit", "age of the current snapshot", _age(lambda row: row.last_commit)),
)
