"""Range partitioning of rows among tasks: bounds come from a sample, and each row goes to the range of its key.

A key that is so frequent that it covers several bounds is distributed over all tasks of these ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.base.plain import PlainData
from lake.core.data.sorting.external_sort import keys_of
from lake.core.data.sorting.key_bytes import PREFIX, bound_ranks

# Sampled keys for each range: the same number as in Spark.
SAMPLED_PER_RANGE = 100
_SEED = 7
# The input bytes of a range that is sorted in memory, and the most ranges of all tasks.
_RANGE_BYTES = 8 * 1024 * 1024
_MOST_RANGES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledKeys(PlainData):
    """A sample of a task's sort keys, and the number of rows that it stands for."""

    rows: int
    keys: Sequence[bytes]


class KeySample:
    """A uniform random sample of keys; the same in every run.

    Args:
        size: the size of the sample.
        number: the number of the task that takes it.
    """

    def __init__(self, size: int, number: int) -> None:
        self._size = size
        self._random = np.random.default_rng([_SEED, number])
        self._ranks: npt.NDArray[np.float64] = np.zeros(0)
        self._keys: list[bytes] = []
        self.rows = 0

    def add(self, keys: pa.BinaryArray) -> None:
        """Add keys to the population."""
        self.rows += len(keys)
        ranks = self._random.random(len(keys))
        limit = self._ranks.max() if len(self._ranks) >= self._size else 1.0
        near = np.flatnonzero(ranks < limit)
        if len(near) > self._size:
            near = near[np.argpartition(ranks[near], self._size)[: self._size]]
        self._ranks = np.concatenate([self._ranks, ranks[near]])
        self._keys += [key[:PREFIX] for key in keys.take(pa.array(near)).to_pylist()]
        if len(self._keys) > self._size:
            kept = np.argpartition(self._ranks, self._size)[: self._size]
            self._ranks = self._ranks[kept]
            self._keys = [self._keys[position] for position in kept]

    def result(self) -> SampledKeys:
        """Return the sampled keys, the input of `cuts`."""
        return SampledKeys(rows=self.rows, keys=self._keys)


def cuts(samples: Sequence[SampledKeys], ranges: int) -> list[bytes]:
    """Return the keys that divide the samples into about equal ranges, ascending, possibly repeated."""
    weighed = [(key, sample.rows / len(sample.keys)) for sample in samples for key in sample.keys]
    if not weighed or ranges < 2:  # noqa: PLR2004 - nothing to cut
        return []
    weighed.sort()
    reached = np.cumsum([weight for _, weight in weighed])
    wanted = reached[-1] * np.arange(1, ranges) / ranges
    positions = np.minimum(np.searchsorted(reached, wanted), len(weighed) - 1)
    return [weighed[position][0] for position in positions]


def parts_of(input_bytes: int, writers: int) -> int:
    """Return into how many ranges each writer's range is divided, so that it can sort them one after the other.

    Args:
        input_bytes: the bytes of the input for one writer.
        writers: the number of all writers.
    """
    return max(1, min(input_bytes // _RANGE_BYTES, _MOST_RANGES // max(writers, 1)))


@dataclass(slots=True)
class Ranges:
    """Assigns rows to the range of their key.

    Args:
        bounds: the keys between the ranges.
        parts: the number of adjacent ranges that are written together.
    """

    bounds: Sequence[bytes]
    parts: int = 1
    _turn: int = field(default=0)

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows, with keys, of each range."""
        if not self.bounds:
            yield 0, rows
            return
        first, last = bound_ranks(keys_of(rows), self.bounds)
        # Rows that equal bounds may go to either side; they are distributed in turn. Of the ranges that are written
        # together they go to the first, so that equal rows keep their order.
        turns = self._turn + np.arange(rows.num_rows)
        self._turn += rows.num_rows
        low, high = first // self.parts, last // self.parts
        numbers = np.maximum(first, (low + turns % (high - low + 1)) * self.parts)
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        rows = rows.take(pa.array(order))
        for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
            yield int(numbers[order[start]]), rows.slice(start, end - start)
