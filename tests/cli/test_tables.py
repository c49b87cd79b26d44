"""Tables for a terminal, at any width: what is shown is whole or marked."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lake.cli.cells import ELLIPSIS
from lake.cli.tables import column, draw_records, fit

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


TYPES = {bool: "boolean", int: "long", float: "double", str: "string", datetime: "timestamptz"}


def kind_of(values: list[Any]) -> str:
    given = next((value for value in values if value is not None), 0)
    return TYPES.get(type(given), "struct")


def lines(rows: list[dict[str, Any]], width: int, **options: bool) -> list[str]:
    columns = [
        column(name, values, kind_of(values))
        for name in rows[0]
        for values in [[row[name] for row in rows]]
    ]
    layout = fit(columns, width, **options)
    return [*(line.plain for line in layout.lines()), *filter(None, [layout.mark])]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_wide_table_shows_whole_values_and_says_how_many_columns(width: int) -> None:
    drawn = lines([FLIGHT] * 3, width)

    assert all(cell_len(line) <= width for line in drawn)
    names, cells = drawn[0].split(), drawn[3].replace("2013-01-01 05", "2013-01-01T05").split()
    shown = [str(FLIGHT[name]) for name in names if name != ELLIPSIS]
    assert [cell.replace("T05", " 05") for cell in cells if cell != ELLIPSIS] == shown
    marked = f"19 columns, {len(shown)} shown"
    assert drawn[-1] == (marked if width < 200 else drawn[3])


@given(
    st.lists(st.integers(-(10**30), 10**30) | st.floats() | st.none(), min_size=1, max_size=30),
    st.integers(20, 200),
)
def test_no_number_is_cut_at_any_width(numbers: list[Any], width: int) -> None:
    drawn = lines([{f"c{place}": value for place, value in enumerate(numbers)}], width)

    given_texts = {"NULL" if value is None else str(value) for value in numbers}
    assert {cell for cell in drawn[3].split() if cell != ELLIPSIS} <= given_texts


@given(
    st.lists(st.text(alphabet="abç漢", min_size=1, max_size=200), min_size=1, max_size=5),
    st.integers(20, 80),
)
def test_a_text_that_is_shortened_ends_with_an_ellipsis(texts: list[str], width: int) -> None:
    drawn = lines([{"n": 5, "text": text} for text in texts], width)

    for text, line in zip(texts, drawn[3:], strict=True):
        shown = re.sub(r"^ *5 *", "", line)
        assert cell_len(line) <= width
        assert shown == text or (shown.endswith(ELLIPSIS) and text.startswith(shown[:-1]))


def test_all_columns_are_shown_on_request() -> None:
    drawn = lines([FLIGHT], 80, every=True)

    assert drawn[0].split() == list(FLIGHT)
    assert len(drawn) == 4


def test_null_and_the_empty_text_differ_and_nested_values_are_json() -> None:
    row = {"a": None, "b": "", "c": {"x": None, "y": [True]}, "d": False, "e": "null", "f": " x"}
    drawn = lines([row, {**row, "e": "it's", "f": "'q'"}], 80)

    assert drawn[3:] == [
        """NULL  ''      {"x": null, "y": [true]}  false    'null'  ' x'""",
        """NULL  ''      {"x": null, "y": [true]}  false    it's    '''q'''""",
    ]


def test_records_have_a_line_for_each_column_and_shorten_nothing() -> None:
    columns = [column("id", [7], "long"), column("t", ["x" * 100], "string")]
    drawn = [line.plain for line in draw_records(columns, 80)]

    assert drawn == ["row 1", "  id  7", "  t   " + "x" * 74, "      " + "x" * 26]


def test_a_block_shows_ten_lines_of_a_value_at_most() -> None:
    drawn = [line.plain for line in draw_records([column("t", ["x" * 10**6], "string")], 80)]

    assert len(drawn) == 11
    assert drawn[-1].strip() == ELLIPSIS


def test_the_times_of_a_column_have_as_many_digits_as_they_need_and_name_utc() -> None:
    times = ["2026-01-01T12:00:00.000000Z", "2026-01-01T12:00:00.500000Z", None]

    assert column("t", times, "timestamptz").cells == [
        "2026-01-01 12:00:00.000",
        "2026-01-01 12:00:00.500",
        None,
    ]
    assert column("t", times, "timestamptz").type == "timestamptz (UTC)"
    assert column("t", times[:1], "timestamptz").cells == ["2026-01-01 12:00:00"]
    assert column("t", ["12:00:00.000000"], "time").cells == ["12:00:00"]
    assert column("t", times[:1], "string").cells == times[:1]


def test_a_report_names_the_zone_of_its_times_once_and_leaves_out_fractions_of_seconds() -> None:
    times = column("last_commit", ["2026-01-01T12:00:00.123Z", None])
    mixed = column("value", ["2026-01-01T12:00:00.123Z", "7"])

    assert (times.name, times.cells) == ("last_commit (UTC)", ["2026-01-01 12:00:00", ""])
    assert (mixed.name, mixed.cells) == ("value", ["2026-01-01 12:00:00 UTC", "7"])


def test_a_report_has_separators_in_counts_but_not_in_ids_and_nothing_for_a_missing_value() -> None:
    assert column("rows", [600566, None]).cells == ["600,566", ""]
    assert column("checkpoint_id", [600566, None]).cells == ["600566", ""]
    assert column("added_bytes", [3 << 20]).cells == ["3.0 MB"]


def test_columns_that_are_shortened_share_the_room_that_is_left() -> None:
    drawn = lines([{"a": "x" * 90, "b": "short text", "c": "y" * 50}], 80)

    assert [len(cell) for cell in re.split("  +", drawn[3])] == [33, 10, 33]


def test_types_are_shown_below_the_names() -> None:
    drawn = [line.plain for line in fit([column("id", [7], "long")], 80).lines()]

    assert drawn == ["  id", "long", "────", "   7"]


def test_a_text_of_a_report_takes_several_lines_instead_of_being_cut() -> None:
    path = "file:///warehouse/db/t/data/" + "0123456789" * 5
    report = [column("code", ["F001"]), column("place", [path]), column("message", ["is gone"])]

    drawn = [line.plain for line in fit(report, 40).lines()]

    assert [line.split("  ")[0] for line in drawn[2:]] == ["F001", "", "", ""]
    assert "".join(line[6:31].rstrip() for line in drawn[2:]) == path
    assert [line[33:].strip() for line in drawn[2:]] == ["is gone", "", "", ""]


def test_words_of_a_report_stay_whole() -> None:
    texts = ["the manifest declares 7 rows", "は" * 20]
    drawn = [line.plain for line in fit([column("message", texts)], 14).lines()]

    assert drawn[2:] == ["the manifest", "declares 7", "rows", *["は" * 7] * 2, "は" * 6]


def test_a_report_keeps_all_numbers_and_breaks_long_names_before_it_leaves_a_column_out() -> None:
    report = [
        column("table", ["sales.orders"]),
        column("reason", ["x" * 30]),
        column("deleted_data_files_count", [7]),
        column("note", ["y" * 30]),
        column("size_bytes", [5 << 20]),
    ]

    drawn = fit(report, 36)
    text = "\n".join(line.plain for line in drawn.lines())

    assert drawn.mark == "5 columns, 3 shown"
    assert [item.name for item in drawn.columns] == [
        *("table", ELLIPSIS, "deleted_data_files_count", ELLIPSIS, "size_bytes"),
    ]
    assert max(map(len, text.split("\n"))) <= 36
    assert all(part in text for part in ["deleted_", "data_", "files_", "count", "5.0 MB"])


def test_a_word_of_a_report_is_not_broken_for_want_of_room() -> None:
    report = [column("reason", ["x" * 60]), column("refs", ["main, release-2026-01-31"])]
    drawn = [line.plain for line in fit(report, 40).lines()]

    assert any("release-2026-01-31" in line for line in drawn)


def test_named_columns_are_kept_first_and_paths_are_relative_to_the_root() -> None:
    root = "s3://bucket/warehouse/db/t"
    data = [
        *(column(f"c{number}", [12345678], "long") for number in range(20)),
        column("file_path", [f"{root}/data/a.parquet"], "string", root),
        column("other", [f"{root}-2/data/a.parquet"], "string", root),
        column("partition", [{"day": "2026-01-31", "bucket": None}], "struct<day: date>"),
    ]

    drawn = fit(data, 80, first=["file_path", "partition"])
    text = "\n".join(line.plain for line in drawn.lines())

    assert drawn.mark == "23 columns, 4 shown"
    assert "data/a.parquet  " in text
    assert "s3://bucket/warehouse/db/t-2" in column("o", [f"{root}-2/x"], "string", root).cells[0]
    assert "day=2026-01-31/bucket=NULL" in text


def test_a_narrow_report_shows_as_many_digits_of_snapshot_ids_as_distinguish_them() -> None:
    ids = ["3767946014217135841", "3767946012217135841", "1334381331904519460"]
    report = [column("snapshot_id", ids), column("rows", [f"+{number}" for number in ids])]

    wide = [line.plain.split()[0] for line in fit(report, 60).lines()]
    narrow = [line.plain.split()[0] for line in fit(report, 36).lines()]

    assert wide[2:] == ids
    assert narrow[2:] == ["3767946014…", "3767946012…", "1334381331…"]
