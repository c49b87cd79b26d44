"""Cut files into pieces and pack the pieces into splits, without I/O.

Source: Iceberg's TableScanUtil and BinPacking.PackingIterable.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.spec.properties.table_properties import SPLIT_BYTES, SPLIT_LOOKBACK, SPLIT_OPEN_BYTES

_MAX_PIECES = 50_000_000
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


def cut(
    file: int, length: int, offsets: Sequence[int] | None, options: SplitOptions
) -> list[SplitPiece]:
    """Cut one file at its split offsets if they are increasing, else every ``size`` bytes."""
    if offsets and all(a < b for a, b in itertools.pairwise(offsets)):
        ends = [*offsets[1:], length]
        if offsets[-1] < length:
            return [
                SplitPiece(file, start, end - start)
                for start, end in zip(offsets, ends, strict=True)
            ]
    return [
        SplitPiece(file, start, min(options.size, length - start))
        for start in range(0, max(length, 1), options.size)
    ]


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


def cut_all(sizes: Any, offsets: pa.Array, options: SplitOptions) -> Pieces:
    """Cut files as `cut` does; files with one row group, such as small files, without a loop.

    Args:
        sizes: size of each file in bytes (numpy).
        offsets: list array of split offsets.
        options: the split size.

    Raises:
        InvalidRequestError: there would be more pieces than memory can store.
    """
    if float(np.sum(sizes / options.size)) > _MAX_PIECES:
        raise InvalidRequestError(
            f"a split size of {options.size} bytes would cut the files into more than {_MAX_PIECES} pieces",
            hint=f"choose a larger {Option.SPLIT_SIZE}",
        )
    counts = pc.fill_null(pc.list_value_length(offsets), 0).to_numpy(zero_copy_only=False)
    first = pc.fill_null(_first(offsets), 0).to_numpy(zero_copy_only=False)
    simple = (counts == 1) & (first < sizes)
    files = np.flatnonzero(simple)
    columns = [files, first[files], sizes[files] - first[files]]
    others = np.flatnonzero(~simple)
    if len(others):
        lists = offsets.take(pa.array(others)).to_pylist()
        pieces = [
            piece
            for file, starts in zip(others.tolist(), lists, strict=True)
            for piece in cut(file, int(sizes[file]), starts, options)
        ]
        rest = np.array([[p.file, p.start, p.length] for p in pieces], np.int64).T
        columns = [np.concatenate(pair) for pair in zip(columns, rest, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        columns = [column[order] for column in columns]
    return Pieces(*columns)


def _first(offsets: pa.Array) -> pa.Array:
    """Return the first value of each list, NULL for an empty list."""
    short = pc.less(pc.fill_null(pc.list_value_length(offsets), 0), 1)
    filled = pc.if_else(short, pa.scalar([None], offsets.type), offsets)
    return pc.list_element(filled, 0)


def pack(weights: npt.ArrayLike, options: SplitOptions) -> list[list[int]]:
    """Pack the indices of pieces into splits of at most ``size`` weight.

    Uses first fit over ``lookback`` open splits; if there are more, the heaviest is closed.
    """
    done: list[list[int]] = []
    bins: list[list[int]] = []
    loads: list[int] = []
    size, lookback = options.size, options.lookback
    values = np.asarray(weights, np.int64)
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))[: len(values)]
    at = 0
    for end, weight in zip(ends.tolist(), values[ends - 1].tolist(), strict=True):
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
                    bins[index] += range(at, at + count)
                    loads[index] = load + count * weight
                    at += count
                    break
            else:
                bins.append([at])
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
