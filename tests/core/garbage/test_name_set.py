"""A set of names contains what was added to it, however it was put together."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.core.garbage.name_set import NameSet


def _names(start: int, count: int) -> pa.Array:
    return pa.array([f"s3://bucket/{number}" for number in range(start, start + count)])


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 40)), max_size=4)))
def test_a_union_of_unions_has_the_names_of_all(groups: list[list[tuple[int, int]]]) -> None:
    joined = NameSet.joined(
        NameSet.joined(NameSet.of(_names(*part)) for part in group) for group in groups
    )

    expected = {
        number
        for group in groups
        for start, count in group
        for number in range(start, start + count)
    }
    found = joined.has(_names(0, 140)).to_pylist()
    assert [number for number, is_in in enumerate(found) if is_in] == sorted(expected)


def test_a_union_with_few_others_does_not_copy_a_large_set() -> None:
    large = NameSet.of(_names(0, 1000))
    joined = NameSet.joined([NameSet.of(_names(1000, 3)), large, NameSet.of(_names(2000, 3))])

    assert any(run is large.runs[0] for run in joined.runs)
    found = joined.has(_names(0, 2004)).to_pylist()
    assert [number for number, is_in in enumerate(found) if is_in] == [
        *range(1003),
        *range(2000, 2003),
    ]
