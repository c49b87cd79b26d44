"""Overlaps of ranges are counted as by comparing all pairs, and what is chosen once is not chosen again."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.data.sorting.overlaps import Int64s, Ranges, chosen_clusters


@st.composite
def some_ranges(draw: st.DrawFn) -> Ranges:
    """Draw ranges; as in `Ranges`, only ranges of one key have odd bounds."""
    numbers = st.integers(0, draw(st.sampled_from([3, 10, 40])))
    drawn = draw(st.lists(st.tuples(numbers, numbers), max_size=25))
    pairs = [(2 * min(a, b), 2 * max(a, b)) if a != b else (2 * a + 1, 2 * a + 1) for a, b in drawn]
    return Ranges(*np.array(pairs, np.int64).reshape(-1, 2).T.copy())


def pairs_of(ranges: Ranges) -> list[tuple[int, int]]:
    return list(zip(ranges.low.tolist(), ranges.high.tolist(), strict=True))


def overlap(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[0] < right[1] and right[0] < left[1]


@settings(deadline=None, max_examples=examples(200))
@given(some_ranges(), some_ranges())
def test_counts_are_those_of_all_pairs(ranges: Ranges, others: Ranges) -> None:
    every = pairs_of(ranges)

    assert ranges.overlaps().tolist() == [
        sum(overlap(one, other) for number, other in enumerate(every) if number != place)
        for place, one in enumerate(every)
    ]
    assert ranges.overlaps_with(others).tolist() == [
        sum(overlap(one, other) for other in pairs_of(others)) for one in every
    ]
    # A range contains the place where it begins.
    assert ranges.depths().tolist() == [
        1
        + sum(
            other[0] <= one[0] < other[1] and (other[0] < one[0] or one[0] < one[1])
            for number, other in enumerate(every)
            if number != place
        )
        for place, one in enumerate(every)
    ]


@settings(deadline=None, max_examples=examples(200))
@given(some_ranges())
def test_connected_ranges_are_those_that_a_search_reaches(ranges: Ranges) -> None:
    every = pairs_of(ranges)
    number_of: dict[int, int] = {}
    for start in sorted(range(len(every)), key=every.__getitem__):
        waiting = [start] if start not in number_of else []
        number = len(set(number_of.values()))
        while waiting:
            place = waiting.pop()
            number_of[place] = number
            waiting += [
                other
                for other in range(len(every))
                if other not in number_of and overlap(every[place], every[other])
            ]

    found = ranges.connected().tolist()
    # The numbers rise with the bounds; ranges of one key that are equal have numbers of their own.
    assert [[a == b for b in found] for a in found] == [
        [number_of[a] == number_of[b] for b in range(len(every))] for a in range(len(every))
    ]
    assert [low for _, low in sorted(zip(found, ranges.low.tolist(), strict=True))] == sorted(
        ranges.low.tolist(), key=lambda low: low
    ) or len(set(found)) < len(found)
    hulls = ranges.hulls(ranges.connected())
    assert not hulls.overlaps().any()


def weigh(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[int]:
    """Return for each range the sum of the lower bounds of those that it overlaps."""
    return [sum(other[0] for other in right if overlap(one, other)) for one in left]


@settings(deadline=None, max_examples=examples(100))
@given(some_ranges(), some_ranges())
def test_sums_are_those_of_the_overlapping_ranges(ranges: Ranges, others: Ranges) -> None:
    assert ranges.sums(others, others.low).tolist() == weigh(pairs_of(ranges), pairs_of(others))


# The rows of a piece, at least.
_ROWS = 3


def pieces(totals: Int64s) -> Int64s:
    return np.maximum(totals // _ROWS, 1)


def ranges_of(files: list[list[int]]) -> Ranges:
    """Return the ranges of files with some keys: one of several keys excludes its ends."""
    pairs = [
        (4 * min(rows), 4 * min(rows))
        if len(set(rows)) == 1
        else (4 * min(rows) + 1, 4 * max(rows) - 1)
        for rows in files
    ]
    return Ranges(*np.array(pairs, np.int64).reshape(-1, 2).T.copy())


def chosen(files: list[list[int]], most: int) -> Int64s:
    return chosen_clusters(ranges_of(files), np.array([*map(len, files)], np.int64), most, pieces)


@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=9), max_size=25), st.integers(0, 6)
)
def test_a_second_choice_finds_nothing(files: list[list[int]], most: int) -> None:
    clusters = chosen(files, most)

    too_many = ranges_of(files).overlaps() > most
    assert set(np.flatnonzero(too_many)) <= set(np.flatnonzero(clusters >= 0))
    after = [rows for rows, cluster in zip(files, clusters, strict=True) if cluster < 0]
    for number in range(int(clusters.max(initial=-1)) + 1):
        own = [rows for rows, cluster in zip(files, clusters, strict=True) if cluster == number]
        assert len(own) > 1
        rows = sorted(itertools.chain(*own))
        starts = range(0, max(len(rows) - _ROWS + 1, 1), _ROWS)
        after += [rows[start : start + _ROWS] for start in starts]
        after[-1] += rows[starts[-1] + _ROWS :]
    assert not (ranges_of(after).overlaps() > most).any()
    assert (chosen(after, most) == -1).all()


def test_ranges_that_only_touch_are_left_alone_and_those_beside_a_heap_too() -> None:
    chain = [(place * 10, place * 10 + 12) for place in range(1000)]
    heap = [(5000, 5010 + place) for place in range(30)]
    ranges = Ranges(*np.array([*chain, *heap], np.int64).T.copy())

    clusters = chosen_clusters(ranges, np.ones(len(ranges.low), np.int64), 10, pieces)

    # Every range is connected to every other one, but few must be sorted.
    assert set(ranges.connected().tolist()) == {0}
    assert (clusters[1000:] == 0).all()
    assert 1 <= np.count_nonzero(clusters[:1000] >= 0) <= 10
