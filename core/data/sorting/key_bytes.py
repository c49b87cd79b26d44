"""Sort binary keys by their bytes, and find their positions among bounds.

No key may be a prefix of another: then shorter keys can be padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Bytes

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# The part of a key that is compared first; keys with an equal prefix are rare.
PREFIX = 64
_WORD = 8


def byte_order(keys: pa.BinaryArray) -> Indices | None:
    """Return the indices that sort keys; None if they are already ascending."""
    if len(keys) < 2:  # noqa: PLR2004 - nothing to sort
        return None
    longest = _longest(keys)
    words = _words(prefixes(keys, min(longest, PREFIX)))
    if _ascending(words) and longest <= PREFIX:
        return None
    order = np.argsort(words[0], kind="stable") if words else np.arange(len(keys))
    groups = _ranks(words[0][order]) if words else np.zeros(len(keys), np.int64)
    for word in words[1:]:
        order, groups = _by_next(order, groups, word)
    if longest > PREFIX:
        order = _by_rest(order, groups, keys)
    return order


def count_up_to(keys: pa.BinaryArray, bound: bytes) -> int:
    """Return how many of the ascending keys are not greater than a bound."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low


def bound_ranks(keys: pa.BinaryArray, bounds: Sequence[bytes]) -> tuple[Indices, Indices]:
    """Return how many bounds are less than each key, and how many are not greater.

    Only the first `PREFIX` bytes of keys and bounds are compared.
    """
    width = min(max([_longest(keys), *map(len, bounds)], default=0), PREFIX)
    if width == 0 or not len(keys):
        return np.zeros(len(keys), np.int64), np.full(len(keys), len(bounds))
    texts = _texts(prefixes(keys, width))
    edges = np.array([bound[:PREFIX] for bound in bounds], f"S{width}")
    return np.searchsorted(edges, texts, "left"), np.searchsorted(edges, texts, "right")


def prefixes(keys: pa.BinaryArray, width: int) -> Bytes:
    """Return the first bytes of each key, padded with zeros."""
    count = len(keys)
    found = np.zeros((count, width), np.uint8)
    offsets = np.frombuffer(keys.buffers()[1], np.int32, count + 1, 4 * keys.offset)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    if count and np.all(lengths == lengths[0]):
        length = int(lengths[0])
        rows = data[offsets[0] : offsets[-1]].reshape(count, length)
        found[:, :length] = rows[:, :width]
        return found
    for position in range(width):
        longer = np.flatnonzero(lengths > position)
        found[longer, position] = data[offsets[longer] + position]
    return found


def _longest(keys: pa.BinaryArray) -> int:
    return int(pc.max(pc.binary_length(keys)).as_py() or 0)


def _texts(rows: Bytes) -> npt.NDArray[Any]:
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()


def _words(rows: Bytes) -> list[Words]:
    """Return the bytes in which keys differ as numbers, the most significant first."""
    rows = rows[:, rows.min(axis=0) != rows.max(axis=0)]
    width = -(-rows.shape[1] // _WORD) * _WORD
    filled = np.zeros((len(rows), width), np.uint8)
    filled[:, : rows.shape[1]] = rows
    words = filled.view(">u8").astype(np.uint64)
    return [np.ascontiguousarray(words[:, position]) for position in range(words.shape[1])]


def _ascending(words: Sequence[Words]) -> bool:
    """Whether keys with these words are in ascending order."""
    undecided: Any = True
    for word in words:
        before, after = word[:-1], word[1:]
        if np.any(undecided & (before > after)):
            return False
        undecided = undecided & (before == after)
    return True


def _ranks(ordered: Words) -> Indices:
    """Return an ascending rank per value of an ascending array; equal values have equal ranks."""
    return np.cumsum(np.concatenate([[False], ordered[1:] != ordered[:-1]]))


def _tied(groups: Indices) -> Indices:
    """Return where adjacent elements are in one group."""
    same = groups[1:] == groups[:-1]
    return np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))


def _by_next(order: Indices, groups: Indices, word: Words) -> tuple[Indices, Indices]:
    """Order elements that are equal so far by their next word."""
    positions = _tied(groups)
    if not len(positions):
        return order, groups
    rows = order[positions]
    order[positions] = rows[np.lexsort((word[rows], groups[positions]))]
    values = word[order]
    apart = (groups[1:] != groups[:-1]) | (values[1:] != values[:-1])
    return order, np.cumsum(np.concatenate([[False], apart]))


def _by_rest(order: Indices, groups: Indices, keys: pa.BinaryArray) -> Indices:
    """Order elements that are equal so far by the complete key."""
    positions = _tied(groups)
    rows = order[positions]
    tied = pa.table({"group": groups[positions], "key": keys.take(pa.array(rows))})
    by = [("group", "ascending"), ("key", "ascending")]
    order[positions] = rows[pc.sort_indices(tied, sort_keys=by).to_numpy()]
    return order
