"""The order of the tables in a report, and the first ones in it while others are still read."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from lake.core.base.choices import HealthSort
from lake.core.maintain.health.facts import HealthFacts, ViewFacts
from lake.core.maintain.health.grade import BAD, DUE, GOOD, wasted

Order = Callable[[HealthFacts], tuple[object, ...]]
_RANKS = {None: 0, BAD: 1, DUE: 2, GOOD: 3}


class Viewed(NamedTuple):
    """A table with its view."""

    row: HealthFacts
    view: ViewFacts


class FirstViews:
    """The first tables in an order, of those that were added in any order; at most twice as many are in memory."""

    def __init__(self, most: int, order: Order) -> None:
        """Keep nothing yet."""
        self._most, self._order = most, order
        self._kept: list[Viewed] = []

    def add(self, row: HealthFacts, view: ViewFacts | None) -> None:
        """Add a table, unless it has no view."""
        if view is not None:
            self._kept.append(Viewed(row, view))
        if len(self._kept) > 2 * self._most:
            self._kept = self.first()

    def first(self) -> list[Viewed]:
        """Return the first tables, sorted."""
        return heapq.nsmallest(self._most, self._kept, key=lambda kept: self._order(kept.row))


def order_of(sort: HealthSort) -> Order:
    """Return the key of an order; rows of equal measures are sorted by their names."""

    def number(row: HealthFacts) -> float:
        if sort is HealthSort.NEED:
            return wasted(row)
        measures = {
            HealthSort.FILES: row.reading.files,
            HealthSort.BYTES: row.reading.bytes,
            HealthSort.GROWTH: row.growth_bytes,
        }
        return measures.get(sort) or 0

    def key(row: HealthFacts) -> tuple[object, ...]:
        name = row.table or row.namespace
        if sort is HealthSort.NAME:
            return (name,)
        rank = _RANKS[row.grade] if sort is HealthSort.NEED else 0
        return (rank, -number(row), name)

    return key
