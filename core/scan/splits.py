"""Cut files into splits and pack the splits: pure functions.

Source: Iceberg's TableScanUtil and BinPacking.PackingIterable.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lake.core.errors import InvalidRequestError

SPLIT_BYTES = 128 * 1024 * 1024
LOOKBACK = 10
OPEN_COST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """How scans are cut; sizes are bytes."""

    size: int = SPLIT_BYTES
    lookback: int = LOOKBACK
    open_cost: int = OPEN_COST_BYTES

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise InvalidRequestError(f"split size must be > 0: {self.size}")
        if self.lookback <= 0:
            raise InvalidRequestError(f"split planning lookback must be > 0: {self.lookback}")
        if self.open_cost < 0:
            raise InvalidRequestError(f"file open cost must be >= 0: {self.open_cost}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of bytes of a file, by the file's place in the plan."""

    file: int
    start: int
    length: int


def cut(
    file: int, length: int, offsets: Sequence[int] | None, options: SplitOptions
) -> list[Piece]:
    """Cut one file: at its split offsets if they rise, else at every ``size`` bytes."""
    if offsets and all(a < b for a, b in itertools.pairwise(offsets)):
        ends = [*offsets[1:], length]
        if offsets[-1] < length:
            return [
                Piece(file, start, end - start) for start, end in zip(offsets, ends, strict=True)
            ]
    return [
        Piece(file, start, min(options.size, length - start))
        for start in range(0, max(length, 1), options.size)
    ]


def pack(
    pieces: Iterable[Piece], weights: Iterable[int], options: SplitOptions
) -> list[list[Piece]]:
    """Pack pieces into splits of at most ``size`` weight, first fit over ``lookback`` open ones.

    When there are too many open, the heaviest is closed; neighbouring pieces of a file become one again.
    """
    done: list[list[Piece]] = []
    bins: list[list[Piece]] = []
    loads: list[int] = []
    size, lookback = options.size, options.lookback
    for piece, weight in zip(pieces, weights, strict=True):
        for index, load in enumerate(loads):
            if load + weight <= size:
                bins[index].append(piece)
                loads[index] = load + weight
                break
        else:
            bins.append([piece])
            loads.append(weight)
            if len(bins) > lookback:
                heaviest = loads.index(max(loads))
                done.append(bins.pop(heaviest))
                loads.pop(heaviest)
    return [merged(pieces) for pieces in (*done, *bins)]


def merged(pieces: list[Piece]) -> list[Piece]:
    """Join neighbouring pieces of one file."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.file == piece.file and last.start + last.length == piece.start:
            joined[-1] = Piece(last.file, last.start, last.length + piece.length)
        else:
            joined.append(piece)
    return joined


def weight(length: int, deletes: int, delete_bytes: int, options: SplitOptions) -> int:
    """Return what a piece counts: its bytes and its deletes', at least the cost of opening them."""
    return max(length + delete_bytes, (1 + deletes) * options.open_cost)
