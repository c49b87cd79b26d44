"""Numbers, sizes and durations."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.core.base.errors import InvalidRequestError
from lake.core.base.units import (
    format_duration,
    format_size,
    format_time,
    is_duration,
    iso_time,
    natural_number,
    parse_duration_ms,
    parse_size,
    parse_time_ms,
    read_time,
    whole_number,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_number_of_64_bits_is_one(number: int) -> None:
    assert whole_number(str(number)) == number


# Python would read some of these, and end at the longest.
@pytest.mark.parametrize(
    "text",
    [
        "",
        "²",
        "٣",
        " 5",
        "5\n",
        "1_000",
        "1e3",
        "+",
        "--1",
        str(2**63),
        str(-(2**63) - 1),
        "9" * 5000,
    ],
)
def test_no_other_text_is_one(text: str) -> None:
    assert whole_number(text) is natural_number(text) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_natural_number_is_not_below_zero(number: int) -> None:
    assert natural_number(str(number)) == (number if number >= 0 else None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MB", 64 << 20),
        ("64 mb", 64 << 20),
        ("64MiB", 64 << 20),
        ("64m", 64 << 20),
        ("1.5GB", 3 << 29),
        ("100GB", 100 << 30),
        ("2T", 2 << 40),
        ("1048576", 1 << 20),
        ("7B", 7),
        ("0.5k", 512),
    ],
)
def test_sizes_are_counted_in_mebibytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "0", "0MB", "-1MB", "MB", "1XB", "1e3", "nan", "inf", "9999999999PB", "1 0MB", "٣MB"],
)
def test_a_text_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a size"):
        parse_size(text)


@given(st.integers(1 << 20, 10**15 - 1))
def test_a_number_of_a_mebibyte_or_more_needs_no_unit(size: int) -> None:
    assert parse_size(str(size)) == parse_size(f"{size}B") == size


@pytest.mark.parametrize("text", ["1", "100", " 512 ", "1.5", "1048575"])
def test_a_smaller_number_needs_a_unit(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="has no unit") as caught:
        parse_size(text)
    assert caught.value.hint == f"write {text.strip()}MB, or {text.strip()}B for bytes"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("2w", 1_209_600_000),
        ("0s", 0),
    ],
)
def test_durations_are_milliseconds(text: str, milliseconds: int) -> None:
    assert is_duration(text)
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 days", "1h30m", "2026-01-01", "7d\nx"])
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    assert not is_duration(text)
    with pytest.raises(InvalidRequestError, match="not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        ((1 << 20) - 1, "1.0 MB"),
        (3 << 19, "1.5 MB"),
        (5 << 30, "5.0 GB"),
        (5 << 50, "5120.0 TB"),
    ],
)
def test_sizes_read_as_people_say_them(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (59.94, "59.9s"), (59.96, "1m 00s"), (185, "3m 05s"), (7260, "2h 01m")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_times_are_in_utc_and_name_it() -> None:
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert format_time(1_700_000_000_999) == "2023-11-14 22:13:20 UTC"
    assert iso_time(2**62) is None
    assert format_time(-(2**62)) is None


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1969-01-01T00:00:00.000001Z", -365 * 86_400_000),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T00:00:00.001999Z", 1),
        ("2262-04-11T23:47:16.001Z", 9_223_372_036_001),
    ],
)
def test_a_time_between_two_milliseconds_is_the_earlier_one(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1112026", "%d%m%Y"),
        ("202012", "%Y%m%d"),
        ("2026-01-01" + " " * 1000 + "10", "%Y-%m-%d %H"),
    ],
    ids=["a day without a zero", "a month for a day", "a thousand blanks"],
)
def test_a_text_of_other_digits_or_without_end_is_not_a_time(text: str, form: str) -> None:
    with pytest.raises(ValueError, match=r"digit|characters"):
        read_time(text, form)


@given(
    # Earlier years are written without zeros on some systems.
    st.datetimes(min_value=datetime(1000, 2, 1)),
    st.sampled_from(["%Y%m%d%H%M%S%f", "%d %B %Y  %I:%M %p", "%j.%Y", "%G-W%V-%u", "%y%m%d", "%x"]),
)
def test_what_a_format_writes_is_a_time(moment: datetime, form: str) -> None:
    written = moment.strftime(form)
    assert read_time(written, form).strftime(form) == written
