"""A line of the run log is an entry as it was written, or is not an entry; nothing else happens."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.run_logs import compacted, entry, failed
from support.tiers import examples

from lake.core.maintain.run_log.entries import Entry, UnreadableEntryError

FULL = json.loads(compacted().line()) | {"error": json.loads(failed().line())["error"]}


@pytest.mark.parametrize("one", [entry(), failed(), compacted()], ids=lambda one: one.status)
def test_an_entry_is_read_as_it_was_written(one: Entry) -> None:
    assert Entry.of_line(one.line()) == one


def test_a_line_contains_no_line_break_whatever_the_names_are() -> None:
    name = "a\nb\r\x0b\x0c\x1c\x85\u2028\u2029\ud800"
    line = entry(table=name).line()

    assert line.splitlines() == [line]
    assert line.isascii()
    assert Entry.of_line(line).table == name


def test_members_that_are_not_known_are_ignored() -> None:
    assert Entry.of_line(json.dumps(FULL | {"requests": 5, "x": {"y": []}})).table == "db.t"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "null",
        "5",
        "[]",
        "[" * 100_000,
        '{"at":' * 100_000,
        "9" * 5_000,
        '{"seconds": ' + "9" * 5_000 + "}",
        "{}",
        json.dumps({**FULL, "at": None}),
        json.dumps({**FULL, "at": "yesterday"}),
        json.dumps({**FULL, "at": 1_800_000_000_000}),
        json.dumps({**FULL, "at": "0001-01-01T00:00:00+23:59"}),
        json.dumps({**FULL, "table": None}),
        json.dumps({**FULL, "table": ["db.t"]}),
        json.dumps({**FULL, "table": "x" * 5_000}),
        json.dumps({**FULL, "status": "fine"}),
        json.dumps({**FULL, "x": "y" * (1024 * 1024)}),
    ],
    ids=lambda line: line[:20],
)
def test_other_lines_are_not_entries(line: str) -> None:
    with pytest.raises(UnreadableEntryError):
        Entry.of_line(line)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", "1e400", "true", '"5"', "9" * 20])
def test_numbers_that_no_measure_has_are_not_known(number: str) -> None:
    text = re.sub(r'("(?:files|scan_seconds|bytes)": )[\d.]+', rf"\g<1>{number}", json.dumps(FULL))

    found = Entry.of_line(text)

    assert found.bytes is None
    assert found.before is not None
    assert (found.before.files, found.before.scan_seconds) == (None, None)
    assert found.forecast is not None
    assert found.forecast.bytes == 0


def test_a_time_is_read_as_it_is_written_in_utc() -> None:
    read = Entry.of_line(json.dumps(FULL | {"at": "2026-01-31\x1b09:30:00+01:00"}))

    assert read.at == "2026-01-31T08:30:00.000Z"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(500))
@given(
    changes=st.dictionaries(st.sampled_from([*FULL, "x"]), JSON, max_size=4),
    inner=st.dictionaries(st.sampled_from([*FULL["before"], "kind", "message"]), JSON, max_size=4),
    of=st.sampled_from(["before", "after", "forecast", "error"]),
)
def test_whatever_the_members_are_an_entry_can_be_written_and_read_again(
    changes: dict[str, Any], inner: dict[str, Any], of: str
) -> None:
    document = {**FULL, of: {**FULL[of], **inner}, **changes}
    try:
        read = Entry.of_line(json.dumps(document))
    except UnreadableEntryError:
        assert changes.keys() & {
            *("at", "run", "host", "catalog", "table", "table_uuid", "action", "status"),
        }
        return

    assert Entry.of_line(read.line()) == read
