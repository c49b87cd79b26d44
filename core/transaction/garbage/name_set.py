"""Sets of many file names in little memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.data.keys.encoding import hash_keys
from lake.core.transaction.garbage.hash_file import HashCollector, Hashes, Run, StoredRun

# A union is one sorted array, unless one of its sets has this many times the names of the others together.
_MUCH_LARGER = 8


def name_hashes(names: pa.Array) -> Hashes:
    """Return a hash of 64 bits for each name (`FileNames.of`)."""
    return hash_keys(pa.RecordBatch.from_arrays([names], names=["name"]))


class NameSet:
    """A set of names, as their hashes: eight bytes for each name, in memory or on disk.

    Two names may have one hash. Then a name seems to be in the set that is not, with a probability of one in 10^12
    for sets of 10 million names; a name of the set is never missing. So a set of names of files that are needed is
    safe: what is not in it can be removed, and at worst a file too many is kept.
    """

    def __init__(self, hashes: Iterable[Hashes] = ()) -> None:
        """Make a set; one of many names is on disk.

        Args:
            hashes: `name_hashes` of its names, in any order.

        Raises:
            StorageError: there is not enough space.
        """
        collected = HashCollector()
        for each in hashes:
            collected.add(each)
        # The longest one last.
        self.runs: tuple[Run | StoredRun, ...] = (collected.run(),)

    @classmethod
    def of(cls, *names: pa.Array) -> NameSet:
        """Return the set of some names."""
        return cls(name_hashes(column) for column in names)

    @classmethod
    def of_run(cls, run: Run | StoredRun) -> NameSet:
        """Return the set of sorted hashes."""
        made = cls()
        made.runs = (run,)
        return made

    @classmethod
    def joined(cls, sets: Iterable[NameSet]) -> NameSet:
        """Return the union of sets; what is on disk, or much larger than the others, is shared."""
        runs = sorted((run for each in (cls(), *sets) for run in each.runs), key=len)
        stored = [run for run in runs if isinstance(run, StoredRun)]
        *others, longest = [run for run in runs if isinstance(run, Run)]
        if sum(map(len, others)) * _MUCH_LARGER > len(longest):
            others, longest = [*others, longest], Run(np.empty(0, np.uint64))
        joined = cls(run.hashes for run in others)
        joined.runs = (*joined.runs, *filter(len, [longest]), *stored)
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
                found[order] |= run.has(wanted)
        return found
