"""Find the rows of a file slice in the file's row groups or stripes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lake.core.data.columns.file_slice import FileSlice


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of one row group or stripe that are in a slice.

    Args:
        piece: the index of the row group or stripe.
        start: the position of the first row in the file.
        skip: the number of earlier rows in the row group or stripe.
        rows: the number of rows.
    """

    piece: int
    start: int
    skip: int
    rows: int


def row_ranges(pieces: Iterable[tuple[int, int]], file: FileSlice) -> list[RowRange]:
    """Return the rows of a slice.

    Args:
        pieces: the offset of the first byte and the number of rows of each row group or stripe.
        file: the slice.
    """
    end = float("inf") if file.length is None else file.start + file.length
    remaining = float("inf") if file.take_rows is None else file.take_rows
    skip, position = file.skip_rows, 0
    ranges = []
    for index, (offset, count) in enumerate(pieces):
        # With a wrong offset, a piece must not fall outside of all slices.
        within = min(max(offset, 0), max(file.size_bytes - 1, 0))
        if file.start <= within < end:
            skipped = min(skip, count)
            rows = int(min(count - skipped, remaining))
            if rows:
                ranges.append(RowRange(index, position + skipped, skipped, rows))
            skip, remaining = skip - skipped, remaining - rows
        position += count
    return ranges
