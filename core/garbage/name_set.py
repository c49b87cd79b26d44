"""Sets of many file names in little memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.keys.encoding import hash_keys


def name_hashes(names: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a hash of 64 bits for each name (`FileNames.of`)."""
    return hash_keys(pa.RecordBatch.from_arrays([names], names=["name"]))


class NameSet:
    """A set of names, as their hashes: eight bytes for each name.

    Two names may have one hash. Then a name seems to be in the set that is not, with a probability of one in 10^12
    for sets of 10 million names; a name of the set is never missing. So a set of names of files that are needed is
    safe: what is not in it can be removed, and at worst a file too many is kept.
    """

    def __init__(self, hashes: Iterable[npt.NDArray[np.uint64]] = ()) -> None:
        """Make a set.

        Args:
            hashes: `name_hashes` of its names, in any order.
        """
        every = np.concatenate([np.empty(0, np.uint64), *hashes])
        every.sort()
        self.hashes = every

    @classmethod
    def of(cls, *names: pa.Array) -> NameSet:
        """Return the set of some names."""
        return cls(name_hashes(column) for column in names)

    @classmethod
    def joined(cls, sets: Iterable[NameSet]) -> NameSet:
        """Return the union of sets."""
        filled = [each for each in sets if len(each)]
        return filled[0] if len(filled) == 1 else cls(each.hashes for each in filled)

    def __len__(self) -> int:
        return len(self.hashes)

    def has(self, names: pa.Array) -> pa.BooleanArray:
        """Return which names are in the set."""
        return pa.array(self.has_hashes(name_hashes(names)))

    def has_hashes(self, hashes: npt.NDArray[np.uint64]) -> Any:
        """Return which names are in the set, by their hashes."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.bool_)
        # Sorted, they are found in places that are close to one another.
        order = np.argsort(hashes)
        wanted = hashes[order]
        places = np.searchsorted(self.hashes, wanted)
        found = np.empty(len(hashes), np.bool_)
        found[order] = self.hashes[np.minimum(places, len(self.hashes) - 1)] == wanted
        return found
