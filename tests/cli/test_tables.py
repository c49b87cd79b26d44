"""Tables for a terminal, at any width: what is shown is whole or marked."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lake.cli.tables import ELLIPSIS, column, draw, draw_records

FLIGHT = {
    **dict.fromkeys(["year", "month", "day", "dep_time", "sched_dep_time", "dep_delay"], 2013),
    **dict.fromkeys(["arr_time", "sched_arr_time", "arr_delay"], -11),
    "carrier": "UA",
    "flight": 1545,
    "tailnum": "N706JB",
    "origin": "JFK",
    "dest": "IAH",
    **dict.fromkeys(["air_time", "distance", "hour", "minute"], 227),
    "time_hour": datetime(2013, 1, 1, 5),
}


def lines(rows: list[dict[str, Any]], width: int, **options: bool) -> list[str]:
    columns = [column(name, [row[name] for row in rows]) for name in rows[0]]
    return [line.plain for line in draw(columns, width, **options)]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_wide_table_shows_whole_values_and_says_how_many_columns(width: int) -> None:
    drawn = lines([FLIGHT] * 3, width)

    assert all(cell_len(line) <= width for line in drawn)
    names, cells = drawn[0].split(), drawn[2].replace("2013-01-01 05", "2013-01-01T05").split()
    shown = [str(FLIGHT[name]) for name in names if name != ELLIPSIS]
    assert [cell.replace("T05", " 05") for cell in cells if cell != ELLIPSIS] == shown
    marked = f"19 columns, {len(shown)} shown"
    assert drawn[-1] == (marked if width < 200 else drawn[2])


@given(
    st.lists(st.integers(-(10**30), 10**30) | st.floats() | st.none(), min_size=1, max_size=30),
    st.integers(20, 200),
)
def test_no_number_is_cut_at_any_width(numbers: list[Any], width: int) -> None:
    drawn = lines([{f"c{place}": value for place, value in enumerate(numbers)}], width)

    given_texts = {"NULL" if value is None else str(value) for value in numbers}
    assert {cell for cell in drawn[2].split() if cell != ELLIPSIS} <= given_texts


@given(
    st.lists(st.text(alphabet="abç漢", max_size=200), min_size=1, max_size=5), st.integers(20, 80)
)
def test_a_text_that_is_shortened_ends_with_an_ellipsis(texts: list[str], width: int) -> None:
    drawn = lines([{"n": 5, "text": text} for text in texts], width)

    for text, line in zip(texts, drawn[2:], strict=True):
        shown = re.sub(r"^5 *", "", line)
        assert cell_len(line) <= width
        assert shown == text or (shown.endswith(ELLIPSIS) and text.startswith(shown[:-1]))


def test_all_columns_are_shown_on_request() -> None:
    drawn = lines([FLIGHT], 80, every=True)

    assert drawn[0].split() == list(FLIGHT)
    assert len(drawn) == 3


def test_null_and_the_empty_text_differ_and_nested_values_are_json() -> None:
    drawn = lines([{"a": None, "b": "", "c": {"x": None, "y": [True]}, "d": False}], 80)

    assert drawn[2] == 'NULL     {"x": null, "y": [true]}  false'


def test_records_have_a_line_for_each_column_and_shorten_nothing() -> None:
    drawn = [line.plain for line in draw_records([column("id", [7]), column("t", ["x" * 500])])]

    assert drawn == ["row 1", "  id  7", "  t   " + "x" * 500]


def test_types_are_shown_below_the_names() -> None:
    drawn = [line.plain for line in draw([column("id", [7], "long")], 80)]

    assert drawn == ["  id", "long", "────", "   7"]
