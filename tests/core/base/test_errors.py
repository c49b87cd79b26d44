"""The nearest known name, and the hint that suggests it."""

from __future__ import annotations

import pytest

from lake.core.base.errors import did_you_mean, nearest, unknown_column


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("compct", ["scan", "compact"], "compact"),
        ("xyz", ["scan", "compact"], None),
        ("ID", ["key", "id"], "id"),
        ("AMUONT", ["amount", "Amount"], "amount"),
        ("id", [], None),
    ],
)
def test_the_nearest_name_is_found_in_any_case(
    name: str, known: list[str], found: str | None
) -> None:
    assert nearest(name, known) == found


def test_the_hint_asks_for_the_nearest_name_and_then_says_what_there_is() -> None:
    assert did_you_mean("nmae", ["id", "name"]) == "did you mean name?"
    assert did_you_mean("xyz", ["id", "name"]) is None
    assert did_you_mean("xyz", ["id"], "columns: id") == "columns: id"
    assert did_you_mean("idd", ["id"], "columns: id") == "did you mean id? columns: id"


def test_an_unknown_column_is_reported_with_forty_columns_at_most() -> None:
    columns = [f"c{number}" for number in range(50)]
    error = unknown_column("nope", columns, "a.csv")

    assert error.message == "a.csv has no column nope"
    assert error.hint == f"columns: {', '.join(columns[:40])} …"
