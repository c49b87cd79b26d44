"""Sets of names keep what is needed, also if two names have one hash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.transaction.garbage import name_set
from lake.core.transaction.garbage.manifest_files import HeldNames
from lake.core.transaction.garbage.name_set import NameSet, name_hashes

# Names that differ by little: in case, by an accent, by a code, by a slash at the end.
NAMES = (
    *("", "/", "/a", "/A", "/a/", "/a//", "/a b", "/a%20b", "/a%2520b", "/%", "/é", "/e\u0301"),
    *(
        "s3://b/a",
        "s3://b/a/",
        "s3://B/a",
        "gs://b/a",
        "/\U0001f600",
        "/a\x00",
        "/a\n",
        "/" + "x" * 300,
    ),
)
names = st.lists(st.sampled_from(NAMES) | st.text(max_size=5), max_size=12)


def texts(values: list[str]) -> pa.Array:
    return pa.array(values, pa.string())


@settings(max_examples=examples(300))
@given(st.lists(names, max_size=4), names)
def test_a_set_contains_the_names_of_all_its_parts_and_no_other(
    parts: list[list[str]], asked: list[str]
) -> None:
    every = {name for part in parts for name in part}
    expected = [name in every for name in asked]

    assert NameSet.of(*map(texts, parts)).has(texts(asked)).to_pylist() == expected
    joined = NameSet.joined(NameSet.of(texts(part)) for part in parts)
    assert joined.has(texts(asked)).to_pylist() == expected
    held = HeldNames.joined([HeldNames.of(texts(part)) for part in parts])
    assert held.names.has(texts(asked)).to_pylist() == expected
    assert len(joined) == len(held.names) == sum(map(len, parts))


def test_an_empty_set_contains_nothing() -> None:
    for empty in (NameSet(), NameSet.of(), NameSet.joined([]), NameSet.of(texts([]))):
        assert len(empty) == 0
        assert empty.has(texts(["", "/a"])).to_pylist() == [False, False]
        assert empty.has(texts([])).to_pylist() == []


@given(names)
def test_the_hash_of_a_name_does_not_depend_on_the_others(values: list[str]) -> None:
    together = name_hashes(texts(values)).tolist()
    assert together == [name_hashes(texts([value]))[0] for value in values]
    assert together == name_hashes(texts(["before", *values]).slice(1)).tolist()


@given(names, names, st.integers(1, 4))
def test_a_name_of_the_set_is_never_missing_if_hashes_are_equal(
    held: list[str], asked: list[str], different: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_set, "hash_keys", colliding(different))
        found = NameSet.of(texts(held)).has(texts(asked)).to_pylist()
        classes = set(name_hashes(texts(held)).tolist())
        expected = [number in classes for number in name_hashes(texts(asked)).tolist()]

    assert all(kept for name, kept in zip(asked, found, strict=True) if name in held)
    assert found == expected


def colliding(different: int) -> Any:
    """Return a function that gives all names at most this many hashes, the greatest among them."""
    original = name_set.hash_keys
    return lambda batch: np.uint64(2**64 - 1) - original(batch) % np.uint64(different)


def numbered(start: int, count: int) -> pa.Array:
    return pa.array([f"s3://bucket/{number}" for number in range(start, start + count)])


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 40)), max_size=4)))
def test_a_union_of_unions_has_the_names_of_all(groups: list[list[tuple[int, int]]]) -> None:
    joined = NameSet.joined(
        NameSet.joined(NameSet.of(numbered(*part)) for part in group) for group in groups
    )

    expected = {
        number
        for group in groups
        for start, count in group
        for number in range(start, start + count)
    }
    found = joined.has(numbered(0, 140)).to_pylist()
    assert [number for number, is_in in enumerate(found) if is_in] == sorted(expected)


def test_a_union_with_few_others_does_not_copy_a_large_set() -> None:
    large = NameSet.of(numbered(0, 1000))
    joined = NameSet.joined([NameSet.of(numbered(1000, 3)), large, NameSet.of(numbered(2000, 3))])

    assert any(run.hashes is large.runs[0].hashes for run in joined.runs)
    found = joined.has(numbered(0, 2004)).to_pylist()
    assert [number for number, is_in in enumerate(found) if is_in] == [
        *range(1003),
        *range(2000, 2003),
    ]
