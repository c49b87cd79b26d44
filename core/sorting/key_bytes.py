"""Binary keys in the order of their bytes: sort them, and find their places among bounds.

No key may be the beginning of another: then shorter ones may be filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

# So much of a key is looked at first; what is equal up to there is rare.
PREFIX = 64
_WORD = 8


def byte_order(keys: pa.BinaryArray) -> Places | None:
    """Return the places of keys in ascending order; None if that is how they lie."""
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
    """Return how many of some ascending keys are no greater than a bound."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low


def places_among(keys: pa.BinaryArray, bounds: Sequence[bytes]) -> tuple[Places, Places]:
    """Return how many bounds are less than each key, and how many are not greater.

    Only the first `PREFIX` bytes of keys and bounds count.
    """
    width = min(max([_longest(keys), *map(len, bounds)], default=0), PREFIX)
    if width == 0 or not len(keys):
        return np.zeros(len(keys), np.int64), np.full(len(keys), len(bounds))
    texts = _texts(prefixes(keys, width))
    edges = np.array([bound[:PREFIX] for bound in bounds], f"S{width}")
    return np.searchsorted(edges, texts, "left"), np.searchsorted(edges, texts, "right")


def prefixes(keys: pa.BinaryArray, width: int) -> Bytes:
    """Return the first bytes of each key, filled up with zeros."""
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
    for place in range(width):
        longer = np.flatnonzero(lengths > place)
        found[longer, place] = data[offsets[longer] + place]
    return found


def _longest(keys: pa.BinaryArray) -> int:
    return int(pc.max(pc.binary_length(keys)).as_py() or 0)


def _texts(rows: Bytes) -> npt.NDArray[Any]:
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()


def _words(rows: Bytes) -> list[Words]:
    """Return the bytes in which keys differ as numbers, the first bytes first."""
    rows = rows[:, rows.min(axis=0) != rows.max(axis=0)]
    width = -(-rows.shape[1] // _WORD) * _WORD
    filled = np.zeros((len(rows), width), np.uint8)
    filled[:, : rows.shape[1]] = rows
    words = filled.view(">u8").astype(np.uint64)
    return [np.ascontiguousarray(words[:, place]) for place in range(words.shape[1])]


def _ascending(words: Sequence[Words]) -> bool:
    """Whether keys of these words lie in ascending order."""
    undecided: Any = True
    for word in words:
        before, after = word[:-1], word[1:]
        if np.any(undecided & (before > after)):
            return False
        undecided = undecided & (before == after)
    return True


def _ranks(ordered: Words) -> Places:
    """Return a number per ascending value, rising with it and the same for equal ones."""
    return np.cumsum(np.concatenate([[False], ordered[1:] != ordered[:-1]]))


def _tied(groups: Places) -> Places:
    """Return where neighbours are in one group."""
    same = groups[1:] == groups[:-1]
    return np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))


def _by_next(order: Places, groups: Places, word: Words) -> tuple[Places, Places]:
    """Order what is equal so far by its next word."""
    places = _tied(groups)
    if not len(places):
        return order, groups
    rows = order[places]
    order[places] = rows[np.lexsort((word[rows], groups[places]))]
    values = word[order]
    apart = (groups[1:] != groups[:-1]) | (values[1:] != values[:-1])
    return order, np.cumsum(np.concatenate([[False], apart]))


def _by_rest(order: Places, groups: Places, keys: pa.BinaryArray) -> Places:
    """Order what is equal so far by the whole key."""
    places = _tied(groups)
    rows = order[places]
    tied = pa.table({"group": groups[places], "key": keys.take(pa.array(rows))})
    by = [("group", "ascending"), ("key", "ascending")]
    order[places] = rows[pc.sort_indices(tied, sort_keys=by).to_numpy()]
    return order
