"""Parse the lines of a CSV file with Python's parser: slower than PyArrow's, but it knows where a row begins."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from io import TextIOWrapper
from typing import Any

from lake.core.data.sources.discovery import Source, open_stream
from lake.core.io.storage.storage import Storage

BLOCK_BYTES = 8 * 1024 * 1024
# More than two blocks, which is more than PyArrow reads of one row.
_LONGEST_VALUE = 4 * BLOCK_BYTES
_CUT = "unexpected end of data"
_TOO_LONG = "larger than field limit"


def delimiter_of(source: Source) -> str:
    """Return the delimiter of a file: as is known, else by its name."""
    by_name = "\t" if ".tsv" in os.path.basename(source.path).lower() else ","
    return source.text.delimiter or by_name


def csv_reader(lines: Iterable[str], source: Source, *, strict: bool = False) -> Any:
    """Return Python's parser of a file's lines, which knows the numbers of lines."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_VALUE))
    quote = source.text.quote
    return csv.reader(
        lines,
        delimiter=delimiter_of(source),
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        strict=strict,
    )


class Lines:
    """Finds the lines of rows in the file, from its first row to its last."""

    def __init__(self, storage: Storage, source: Source) -> None:
        self._found = self._rows(storage, source)
        self._row = -int(source.text.header)

    def find(self, row: int) -> tuple[int, str]:
        """Return the number of a row's first line, from 1, and its text; rows must be asked for in their order.

        The number is 0 if a value before is too long.
        """
        line, text = 0, ""
        while self._row < row:
            self._row += 1
            line, text = next(self._found, (0, ""))
        return line, text

    def find_all(self, rows: Sequence[int]) -> tuple[Sequence[int | None], Sequence[str]]:
        """Return the lines and the texts of several rows; see `find`."""
        found = [self.find(row) for row in rows]
        return [line or None for line, _ in found], [text for _, text in found]

    def _rows(self, storage: Storage, source: Source) -> Iterator[tuple[int, str]]:
        taken: list[str] = []
        with open_stream(storage, source) as stream:
            lines = TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
            above = source.text.skip_rows
            for _ in range(above):
                lines.readline()
            reader = csv_reader(_recorded(lines, taken), source)
            while True:
                first = above + reader.line_num + 1
                taken.clear()
                try:
                    cells = next(reader, None)
                except csv.Error:
                    # A value is too long, so the lines after it are not known.
                    return
                if cells is None:
                    return
                # PyArrow does not count empty lines.
                if cells:
                    yield first, "".join(taken).rstrip("\r\n")


def _recorded(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    for line in lines:
        taken.append(line)
        yield line


def ends_in_quotes(storage: Storage, source: Source) -> bool:
    """Whether the file's last value begins with a quote that is not closed."""
    with open_stream(storage, source) as stream:
        try:
            lines = TextIOWrapper(stream, "utf-8", "replace", newline="")
            for _ in csv_reader(lines, source, strict=True):
                pass
        except csv.Error as error:
            return str(error) == _CUT or _TOO_LONG in str(error)
    return False
