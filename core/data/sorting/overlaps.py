"""Ranges of keys that overlap: count them, and choose those whose files are worth sorting together.

A range is a pair of integers of one order of all bounds, see `Ranges`. Two ranges that only touch do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lake.core.base.arrow import Int64s, Mask

# After this many steps, all ranges that are connected by others are taken.
_MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Ranges:
    """The ranges of some files.

    Two overlap if each begins before the other ends. A range of one key has two equal bounds; it overlaps a range
    that contains its key between the bounds, and no other range of one key.

    Args:
        low: the lower bounds, of shape (files,).
        high: the upper bounds. No bound of a range of one key equals a bound of a longer range.
    """

    low: Int64s
    high: Int64s

    def take(self, places: Int64s | Mask) -> Ranges:
        """Return some of the ranges."""
        return Ranges(self.low[places], self.high[places])

    def overlaps(self) -> Int64s:
        """Return how many others each range overlaps."""
        own: Int64s = (self.low < self.high).astype(np.int64)
        return self.overlaps_with(self) - own

    def overlaps_with(self, others: Ranges) -> Int64s:
        """Return how many of some ranges each range overlaps."""
        return self.sums(others, np.ones(len(others.low), np.int64))

    def sums(self, others: Ranges, weights: Int64s) -> Int64s:
        """Return for each range the sum of the weights of those of some ranges that it overlaps."""
        by_low, by_high = np.argsort(others.low), np.argsort(others.high)
        begun = np.concatenate([[0], np.cumsum(weights[by_low])])
        ended = np.concatenate([[0], np.cumsum(weights[by_high])])
        # A range of one key does not overlap an equal one, which ends before it without beginning before it.
        points = others.low == others.high
        at = np.argsort(others.low[points])
        equal = np.concatenate([[0], np.cumsum(weights[points][at])])
        keys = others.low[points][at]
        same = (
            equal[np.searchsorted(keys, self.low, "right")] - equal[np.searchsorted(keys, self.low)]
        )
        found: Int64s = (
            begun[np.searchsorted(others.low[by_low], self.high, "left")]
            - ended[np.searchsorted(others.high[by_high], self.low, "right")]
            + np.where(self.low == self.high, same, 0)
        )
        return found

    def depths(self) -> Int64s:
        """Return for each range how many ranges contain the place where it begins, with itself."""
        begun = np.searchsorted(np.sort(self.low), self.low, "right")
        ended = np.searchsorted(np.sort(self.high), self.low, "right")
        found: Int64s = begun - ended + (self.low == self.high)
        return found

    def connected(self) -> Int64s:
        """Return a number for each range; ranges that overlap, also by way of others, have the same number.

        Numbers begin with 0 and rise with the bounds.
        """
        order = np.argsort(self.low, kind="stable")
        furthest = np.maximum.accumulate(self.high[order])
        begins = np.ones(len(order), np.bool_)
        begins[1:] = self.low[order][1:] >= furthest[:-1]
        found = np.empty(len(order), np.int64)
        found[order] = np.cumsum(begins) - 1
        return found

    def hulls(self, numbers: Int64s) -> Ranges:
        """Return the range of all ranges with each of some numbers, which begin with 0."""
        count = int(numbers.max()) + 1 if len(numbers) else 0
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(low, numbers, self.low)
        np.maximum.at(high, numbers, self.high)
        return Ranges(low, high)


def joined(ranges: Sequence[Ranges]) -> Ranges:
    """Return the ranges of all."""
    none = np.zeros(0, np.int64)
    return Ranges(
        np.concatenate([none, *(item.low for item in ranges)]),
        np.concatenate([none, *(item.high for item in ranges)]),
    )


def chosen_clusters(
    ranges: Ranges, sizes: Int64s, most: int, pieces: Callable[[Int64s], Int64s]
) -> Int64s:
    """Choose ranges that overlap too many others, with those that sorted files would overlap too often afterwards.

    The files of a cluster are sorted together, so they become pieces that overlap each other no more. A file beside
    the cluster overlaps at most all of its pieces, and a piece all files beside the cluster that overlap its range.
    If one of these numbers is too great, the files are added to the cluster. So the next choice finds nothing, if
    the pieces are not more than expected.

    Args:
        ranges: the ranges.
        sizes: the bytes of each file.
        most: the number of overlapping ranges that is allowed.
        pieces: returns into how many pieces files of some total sizes are sorted, at most.

    Returns:
        The number of its cluster for each range; -1 for those that are not chosen.
    """
    chosen = ranges.overlaps() > most
    steps = 0
    while chosen.any():
        more = _needed(ranges, sizes, chosen, most, pieces)
        if not more.any():
            break
        chosen[more] = True
        steps += 1
        if steps == _MOST_STEPS:
            numbers = ranges.connected()
            chosen = np.isin(numbers, np.unique(numbers[chosen]))
            break
    found = np.full(len(chosen), -1, np.int64)
    found[chosen] = ranges.take(chosen).connected()
    return found


def _needed(
    ranges: Ranges,
    sizes: Int64s,
    chosen: Mask,
    most: int,
    pieces: Callable[[Int64s], Int64s],
) -> Int64s:
    """Return the places of the ranges that must be added to the clusters of the chosen ones."""
    inner, beside = ranges.take(chosen), ranges.take(~chosen)
    numbers = inner.connected()
    hulls = inner.hulls(numbers)
    totals = np.zeros(len(hulls.low), np.int64)
    np.add.at(totals, numbers, sizes[chosen])
    # Hulls are disjoint and in order, so a range overlaps some of them that are adjacent.
    first = np.searchsorted(hulls.high, beside.low, "right")
    end = np.maximum(np.searchsorted(hulls.low, beside.high, "left"), first)
    too_deep = hulls.overlaps_with(beside) > most
    # A piece that is inside a range has only rows of files that overlap this range; two more overlap its ends.
    inside = pieces(beside.sums(inner, sizes[chosen])) + 2 * (end - first)
    later: Int64s = np.minimum(_between(pieces(totals), first, end), inside) + beside.overlaps()
    add: Mask = (end > first) & ((later > most) | (_between(too_deep, first, end) > 0))
    found: Int64s = np.flatnonzero(~chosen)[add]
    return found


def _between(values: Int64s | Mask, first: Int64s, end: Int64s) -> Int64s:
    """Return the sums of values from one place to another."""
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    found: Int64s = sums[end] - sums[first]
    return found
