"""Compute the changes of a commit from the rows that it removed and added.

A rewrite of a file removes most of its rows and adds them again; rows on both sides are not changes. Of the other
rows, a removed and an added row with one key are an update. Source: Iceberg Java's RemoveCarryoverIterator and
ComputeUpdateIterator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from lake.core.base.arrow import Int64s, Mask
from lake.core.data.keys.row_identity import row_codes

# Iceberg's reserved columns of a change log.
CHANGE_COLUMNS = (
    NestedField(2147483543, "_change_type", StringType(), required=True),
    NestedField(2147483542, "_change_ordinal", IntegerType(), required=True),
    NestedField(2147483541, "_commit_snapshot_id", LongType(), required=True),
)
INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER = range(4)
CHANGE_TYPES = ("insert", "delete", "update_before", "update_after")


@dataclass(frozen=True, slots=True)
class RowDiff:
    """The changes of one commit, in output order.

    Args:
        rows: indices of the rows that changed.
        kinds: the index in `CHANGE_TYPES` of each.
        ambiguous: the number of keys with several removed or added rows, which cannot be paired.
    """

    rows: Int64s
    kinds: npt.NDArray[np.int8]
    ambiguous: int


def match(rows: pa.RecordBatch, inserted: Mask, key: Sequence[str] = ()) -> RowDiff:
    """Return the changed rows; rows on both sides are omitted as often as they are on both.

    Without a key, all deletes precede all inserts. With a key, the rows of a key are adjacent, the removed row
    first.

    Args:
        rows: the removed and added rows; all rows of a key, or all equal rows, are included.
        inserted: which rows were added.
        key: columns by which a removed and an added row are an update.
    """
    kept = np.flatnonzero(~_carried_over(row_codes(rows), inserted))
    side = inserted[kept]
    kinds = np.where(side, INSERT, DELETE).astype(np.int8)
    if not key:
        order = np.argsort(side, kind="stable")
        return RowDiff(kept[order], kinds[order], 0)
    keys = row_codes(rows.select(list(key)))[kept]
    removed, added = _counts(keys, ~side), _counts(keys, side)
    updated = ((removed == 1) & (added == 1))[keys]
    kinds[updated] = np.where(side[updated], UPDATE_AFTER, UPDATE_BEFORE)
    ambiguous = int(np.sum((removed > 0) & (added > 0) & (removed + added > 2)))  # noqa: PLR2004
    order = np.lexsort((side, keys))
    return RowDiff(kept[order], kinds[order], ambiguous)


def _carried_over(codes: Int64s, inserted: Mask) -> Mask:
    """Return which rows have an equal row on the other side."""
    both = np.minimum(_counts(codes, inserted), _counts(codes, ~inserted))
    order = np.lexsort((inserted, codes))
    groups = codes[order] * 2 + inserted[order]
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    ranks = np.arange(len(groups)) - np.repeat(first, np.diff(first, append=len(groups)))
    found = np.zeros(len(codes), np.bool_)
    found[order] = ranks < both[codes[order]]
    return found


def _counts(codes: Int64s, chosen: Mask) -> Int64s:
    """Return the number of chosen rows with each code."""
    size = int(codes.max()) + 1 if len(codes) else 0
    return np.bincount(codes[chosen], minlength=size)
