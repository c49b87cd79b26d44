"""What a commit did to rows, from the rows it took away and those it put there: pure functions.

A file that is rewritten takes away and puts back most of its rows: what is on both sides is no change. Of what
is left, a row that went and a row that came under one key are an update. Source: Iceberg Java's
RemoveCarryoverIterator and ComputeUpdateIterator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.keys.row_identity import Int64s, row_codes

INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER = range(4)
CHANGE_TYPES = ("insert", "delete", "update_before", "update_after")
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowDiff:
    """The changes of one commit, in the order in which they are told.

    Args:
        rows: numbers of the rows that changed.
        kinds: for each of them a place in `CHANGE_TYPES`.
        ambiguous: how many keys went or came several times, so that nobody can tell which row became which.
    """

    rows: Int64s
    kinds: npt.NDArray[np.int8]
    ambiguous: int


def match(rows: pa.RecordBatch, inserted: Mask, key: Sequence[str] = ()) -> RowDiff:
    """Tell what changed: rows on both sides are left out as often as they are on both.

    Without a key, all deletes come before all inserts. With one, the rows of a key stand together, the one that
    went first.

    Args:
        rows: those taken away and those put there; all of those with one key or one identity.
        inserted: which ones were put there.
        key: columns by which a row that went and one that came are told to be an update.
    """
    kept = np.flatnonzero(~_carried_over(row_codes(rows), inserted))
    side = inserted[kept]
    kinds = np.where(side, INSERT, DELETE).astype(np.int8)
    if not key:
        order = np.argsort(side, kind="stable")
        return RowDiff(kept[order], kinds[order], 0)
    keys = row_codes(rows.select(list(key)))[kept]
    gone, come = _counts(keys, ~side), _counts(keys, side)
    updated = ((gone == 1) & (come == 1))[keys]
    kinds[updated] = np.where(side[updated], UPDATE_AFTER, UPDATE_BEFORE)
    ambiguous = int(np.sum((gone > 0) & (come > 0) & (gone + come > 2)))  # noqa: PLR2004
    order = np.lexsort((side, keys))
    return RowDiff(kept[order], kinds[order], ambiguous)


def _carried_over(codes: Int64s, inserted: Mask) -> Mask:
    """Return which rows have a partner on the other side."""
    both = np.minimum(_counts(codes, inserted), _counts(codes, ~inserted))
    order = np.lexsort((inserted, codes))
    groups = codes[order] * 2 + inserted[order]
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    ranks = np.arange(len(groups)) - np.repeat(first, np.diff(first, append=len(groups)))
    found = np.zeros(len(codes), np.bool_)
    found[order] = ranks < both[codes[order]]
    return found


def _counts(codes: Int64s, chosen: Mask) -> Int64s:
    """Return how many of the chosen rows have each code."""
    size = int(codes.max()) + 1 if len(codes) else 0
    return np.bincount(codes[chosen], minlength=size)
