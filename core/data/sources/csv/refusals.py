"""The errors for files that PyArrow refuses: they name the line and what to do about it."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from lake.core.base.errors import CorruptFileError, LakeError
from lake.core.base.options import Option
from lake.core.data.sources.csv.lines import BLOCK_BYTES, Lines, delimiter_of
from lake.core.data.sources.discovery import Source, open_bytes
from lake.core.data.sources.text_format import DELIMITER_NAMES
from lake.core.io.storage.storage import Storage

_LATIN = f"if it is Western European: {Option.ENCODING} latin-1, or cp1252 if Windows wrote it"


class RaggedRow(NamedTuple):
    """A row with another number of columns than the header; `row` counts the rows below the header from 1."""

    row: int
    expected: int
    found: int

    @property
    def reason(self) -> str:
        """What is wrong with the row."""
        columns = "column" if self.expected == 1 else "columns"
        return f"{self.expected} {columns} expected, {self.found} found"


def ragged_error(ragged: RaggedRow, storage: Storage, source: Source) -> LakeError:
    """Return the error for a ragged row, with its line."""
    line, text = Lines(storage, source).find(ragged.row)
    used = delimiter_of(source)
    others = [x for x in DELIMITER_NAMES if x != used and x in text] if ragged.expected == 1 else []
    if others:
        typed = r"$'\t'" if others[0] == "\t" else f"'{others[0]}'"
        hint = f"is it separated by {DELIMITER_NAMES[others[0]]}? try {Option.DELIMITER} {typed}"
    else:
        hint = "a value that contains the delimiter must be in quotes"
    place = f"line {line}" if line else f"row {ragged.row}"
    return CorruptFileError(f"{source.path}, {place}: {ragged.reason}", hint=hint)


def refuse_other_encoding(error: Exception, storage: Storage, source: Source) -> None:
    """Refuse a file that is not UTF-8, if this is why PyArrow raised an error.

    Raises:
        CorruptFileError: it is not UTF-8.
    """
    if source.text.is_utf_8 and (place := not_utf_8(storage, source)):
        raise place from error


def not_utf_8(storage: Storage, source: Source) -> CorruptFileError | None:
    """Return the error for a file that is not UTF-8, with the first such line; None if it is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_bytes(storage, source.path) as stream:
        line = 1
        while True:
            data = bytes(stream.read(BLOCK_BYTES))
            kept = decoder.getstate()[0]
            try:
                decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                part = kept + data
                line += part.count(b"\n", 0, error.start)
                return CorruptFileError(
                    f"{source.path}, line {line}: the byte 0x{part[error.start]:02X} is not UTF-8",
                    hint=_LATIN,
                )
            if not data:
                return None
            line += data.count(b"\n")
