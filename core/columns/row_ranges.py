"""The rows of a slice of a data file, in the pieces of which the file is made: row groups or stripes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lake.core.columns.file_slice import FileSlice


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one piece that lie in a slice.

    Args:
        piece: its index.
        start: the position in the file of the first row.
        skip: how many rows of the piece lie before it.
        rows: how many rows there are.
    """

    piece: int
    start: int
    skip: int
    rows: int


def spans_of(pieces: Iterable[tuple[int, int]], file: FileSlice) -> list[Span]:
    """Return the rows that a slice is made of.

    Args:
        pieces: of each the offset of its first byte, and how many rows it has.
        file: the slice.
    """
    end = float("inf") if file.length is None else file.start + file.length
    left = float("inf") if file.take_rows is None else file.take_rows
    skip, position = file.skip_rows, 0
    spans = []
    for index, (offset, count) in enumerate(pieces):
        # A wrong offset must not put a piece into no slice.
        within = min(max(offset, 0), max(file.size_bytes - 1, 0))
        if file.start <= within < end:
            skipped = min(skip, count)
            rows = int(min(count - skipped, left))
            if rows:
                spans.append(Span(index, position + skipped, skipped, rows))
            skip, left = skip - skipped, left - rows
        position += count
    return spans
