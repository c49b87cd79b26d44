"""Cut files into pieces and pack the pieces into splits, without I/O.

Source: Iceberg's TableScanUtil and BinPacking.PackingIterable.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.spec.properties.table_properties import SPLIT_BYTES, SPLIT_LOOKBACK, SPLIT_OPEN_BYTES

_MAX_PIECES = 50_000_000
# Longer than any file.
_LONGEST = 1 << 62
_SPREAD_BYTES = 16 << 20
_SPREAD_SPLITS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """The sizes of splits, in bytes."""

    size: int = SPLIT_BYTES.default
    lookback: int = SPLIT_LOOKBACK.default
    open_cost: int = SPLIT_OPEN_BYTES.default

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        *,
        size: int | None = None,
        lookback: int | None = None,
        open_cost: int | None = None,
    ) -> SplitOptions:
        """Return the given values, else those of the table's properties, else the defaults.

        Raises:
            InvalidRequestError: a value is out of range.
        """
        return cls(
            size=SPLIT_BYTES.of(properties) if size is None else size,
            lookback=SPLIT_LOOKBACK.of(properties) if lookback is None else lookback,
            open_cost=SPLIT_OPEN_BYTES.of(properties) if open_cost is None else open_cost,
        )

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise InvalidRequestError(f"split size must be positive, not {self.size}")
        if self.lookback <= 0:
            raise InvalidRequestError(
                f"split planning lookback must be positive, not {self.lookback}"
            )
        if self.open_cost < 0:
            raise InvalidRequestError(f"file open cost must not be negative: {self.open_cost}")

    def spread(self, length: int, weight: int) -> SplitOptions:
        """Return a smaller size if splits would be few, for an engine that reads many at once.

        As in Iceberg's own source for Spark, splits of 16 MB are large enough, and 200 are enough. Small files, which
        weigh more than their bytes, make no more splits.

        Args:
            length: the bytes of all pieces.
            weight: their weights.
        """
        count = min(length // _SPREAD_BYTES + 1, _SPREAD_SPLITS)
        return replace(self, size=max(min(self.size, weight // count), 1))


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """A byte range of a file, which is given by its index in the plan."""

    file: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces as columns: file, start and length, with one value for each piece."""

    file: Any
    start: Any
    length: Any

    def __len__(self) -> int:
        return len(self.file)

    def at(self, numbers: Iterable[int]) -> list[SplitPiece]:
        """Return the pieces with the given indices; adjacent pieces of a file are joined."""
        return merged(
            [
                SplitPiece(int(self.file[n]), int(self.start[n]), int(self.length[n]))
                for n in numbers
            ]
        )


def cut_all(tables: Iterable[pa.Table], options: SplitOptions) -> Pieces:
    """Cut files at their split offsets if these rise and are within the file, else every ``size`` bytes.

    Args:
        tables: entries with the columns ``file_size_in_bytes`` and ``split_offsets``.
        options: the split size.

    Raises:
        InvalidRequestError: there would be more pieces than memory can store.
    """
    files = [entries.select(["file_size_in_bytes", "split_offsets"]) for entries in tables]
    sizes = [pc.sum(part.column(0).cast(pa.float64(), safe=False)) for part in files]
    if sum(size.as_py() or 0 for size in sizes) > _MAX_PIECES * options.size:
        raise InvalidRequestError(
            f"a split size of {options.size} bytes would cut the files into more than {_MAX_PIECES} pieces",
            hint=f"choose a larger {Option.SPLIT_SIZE}",
        )
    none = np.zeros(0, np.int64)
    found, first = [(none, none, none)], 0
    # What one batch takes is free before the next one is cut.
    for batch in itertools.chain.from_iterable(part.to_batches() for part in files):
        lengths, offsets = batch.columns
        file, start, length = _cut(lengths, offsets, min(options.size, _LONGEST))
        found.append((file + first, start, length))
        first += batch.num_rows
    return Pieces(*map(np.concatenate, zip(*found, strict=True)))


def _cut(lengths: pa.Array, offsets: pa.ListArray, size: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return the pieces of some files: the index of the file, the start and the length."""
    sizes: Int64s = lengths.to_numpy()
    counts = pc.fill_null(pc.list_value_length(offsets), 0).to_numpy()
    starts, owners = pc.list_flatten(offsets).to_numpy(), np.repeat(np.arange(len(sizes)), counts)
    ends = np.append(starts[1:], 0)[: len(starts)]
    is_cut = counts > 0
    ends[np.cumsum(counts)[is_cut] - 1] = sizes[is_cut]
    # Offsets that do not rise, or are beyond the end, are wrong.
    is_cut[owners[ends <= starts]] = False
    kept = is_cut[owners]
    file, start, end = owners[kept], starts[kept], ends[kept]
    others = np.flatnonzero(~is_cut)
    if len(others):
        counts = np.maximum(-(-sizes[others] // size), 1)
        more = np.repeat(others, counts)
        at = (np.arange(len(more)) - np.repeat(np.cumsum(counts) - counts, counts)) * size
        file, start = np.concatenate((file, more)), np.concatenate((start, at))
        end = np.concatenate((end, np.minimum(at + size, sizes[more])))
        order = np.argsort(file, kind="stable")
        file, start, end = file[order], start[order], end[order]
    return file, start, end - start


def pack(weights: npt.ArrayLike, options: SplitOptions) -> list[array[int]]:
    """Pack the indices of pieces into splits of at most ``size`` weight.

    Uses first fit over ``lookback`` open splits; if there are more, the heaviest is closed.
    """
    done: list[array[int]] = []
    bins: list[array[int]] = []
    loads: list[int] = []
    size, lookback = options.size, options.lookback
    values = np.asarray(weights, np.int64)
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))[: len(values)]
    at = 0
    # Lists of as many numbers would take several times the memory of all else that is planned.
    for end, weight in zip(ends.data, values[ends - 1].data, strict=True):
        while at < end:
            for index, load in enumerate(loads):
                if load + weight <= size:
                    if at + 1 == end or not weight:
                        bins[index].append(at)
                        loads[index] = load + weight
                        at += 1
                        break
                    # The next pieces of the same weight, such as small files, have no other place either.
                    count = min((size - load) // weight, end - at)
                    bins[index].extend(range(at, at + count))
                    loads[index] = load + count * weight
                    at += count
                    break
            else:
                bins.append(array("q", (at,)))
                loads.append(weight)
                at += 1
                if len(bins) > lookback:
                    heaviest = loads.index(max(loads))
                    done.append(bins.pop(heaviest))
                    loads.pop(heaviest)
    return [*done, *bins]


def merged(pieces: list[SplitPiece]) -> list[SplitPiece]:
    """Join adjacent pieces of one file."""
    joined: list[SplitPiece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.file == piece.file and last.start + last.length == piece.start:
            joined[-1] = SplitPiece(last.file, last.start, last.length + piece.length)
        else:
            joined.append(piece)
    return joined


def weights(lengths: Any, options: SplitOptions) -> Any:
    """Return the weights of pieces: their bytes, but at least the cost of opening a file."""
    return np.maximum(lengths, options.open_cost)
