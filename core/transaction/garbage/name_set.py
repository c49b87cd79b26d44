"""Sets of many file names in little memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.data.keys.encoding import hash_keys

Hashes: TypeAlias = npt.NDArray[np.uint64]
# A union is one sorted array, unless one of its sets has this many times the names of the others together.
_MUCH_LARGER = 8


def name_hashes(names: pa.Array) -> Hashes:
    """Return a hash of 64 bits for each name (`FileNames.of`)."""
    return hash_keys(pa.RecordBatch.from_arrays([names], names=["name"]))


class NameSet:
    """A set of names, as their hashes: eight bytes for each name.

    Two names may have one hash. Then a name seems to be in the set that is not, with a probability of one in 10^12
    for sets of 10 million names; a name of the set is never missing. So a set of names of files that are needed is
    safe: what is not in it can be removed, and at worst a file too many is kept.
    """

    def __init__(self, hashes: Iterable[Hashes] = ()) -> None:
        """Make a set.

        Args:
            hashes: `name_hashes` of its names, in any order.
        """
        every = np.concatenate([np.empty(0, np.uint64), *hashes])
        every.sort()
        # Sorted, the longest one last.
        self.runs: tuple[Hashes, ...] = (every,)

    @classmethod
    def of(cls, *names: pa.Array) -> NameSet:
        """Return the set of some names."""
        return cls(name_hashes(column) for column in names)

    @classmethod
    def joined(cls, sets: Iterable[NameSet]) -> NameSet:
        """Return the union of sets; the memory of a set that is much larger than the others is shared."""
        *others, longest = sorted((run for each in (cls(), *sets) for run in each.runs), key=len)
        if sum(map(len, others)) * _MUCH_LARGER > len(longest):
            return cls([*others, longest])
        joined = cls(others)
        joined.runs = (*joined.runs, longest)
        return joined

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def has(self, names: pa.Array) -> pa.BooleanArray:
        """Return which names are in the set."""
        return pa.array(self.has_hashes(name_hashes(names)))

    def has_hashes(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which names are in the set, by their hashes."""
        # Sorted, they are found in places that are close to one another.
        order = np.argsort(hashes)
        wanted = hashes[order]
        found = np.zeros(len(hashes), np.bool_)
        for run in self.runs:
            if len(run):
                places = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
                found[order] |= run[places] == wanted
        return found
