"""Find out how a text file is written where its beginning shows it: the encoding and the delimiter.

Nothing is guessed that has two meanings. A delimiter other than the default is chosen only if the default does not
divide the first rows into columns, and exactly one other delimiter divides all of them into the same number.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Collection, Sequence
from dataclasses import replace
from io import StringIO

from lake.core.base.errors import BadInputError, CorruptFileError, InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.sources.csv.lines import csv_reader, delimiter_of
from lake.core.data.sources.csv.refusals import not_utf_8
from lake.core.data.sources.discovery import (
    CSV,
    JSON,
    Source,
    excel_file,
    open_bytes,
    other_encoding,
    readable,
)
from lake.core.data.sources.text_format import DELIMITER_NAMES, UTF_8, TextFormat
from lake.core.io.storage.storage import Storage

_HEAD_BYTES = 256 * 1024
_HEAD_ROWS = 100
# The longer ones first: the mark of UTF-16 begins that of UTF-32.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ZIP, _OLE, _GZIP, _PARQUET = (
    b"PK\x03\x04",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    b"\x1f\x8b",
    b"PAR1",
)
_ENTRY_OF_EXCEL = (b"[Content_Types].xml", b"_rels/", b"xl/", b"docProps/")


def with_format(
    storage: Storage, source: Source, given: TextFormat, columns: Collection[str] = ()
) -> tuple[Source, list[str]]:
    """Return a source with the format of its text, and what was found out about it.

    Args:
        storage: the storage of the file.
        source: the file.
        given: what the user says about the format.
        columns: the columns of the table, in their order; empty if it does not exist.

    Raises:
        InvalidRequestError: an option does not apply to files of this format.
        RefusedError: the file is an Excel file.
        CorruptFileError: the file is not UTF-8, and no encoding is given.
    """
    _check_options(source, given)
    if not source.is_text:
        return source, []
    with readable(source.path), open_bytes(storage, source.path) as stream:
        head = _head(stream)
    _refuse_other_formats(source, head)
    notes = []
    text = given
    if text.encoding is None and (marked := _marked_encoding(head)):
        notes.append(f"encoded in {marked.upper()}")
        text = replace(text, encoding=marked)
    if text.is_utf_8 and not _is_utf_8(head):
        raise not_utf_8(storage, source) or CorruptFileError(f"{source.path} is not UTF-8")
    source = replace(source, text=text)
    if source.format == CSV:
        rows = _Head(source, head)
        if text.delimiter is None and (found := rows.delimiter(columns)):
            notes.append(f"separated by {DELIMITER_NAMES[found]}")
            text = replace(text, delimiter=found)
        if not text.header:
            text = replace(text, names=_names(source, rows.width(text), columns))
    return replace(source, text=text), notes


def _check_options(source: Source, given: TextFormat) -> None:
    if source.format == CSV:
        return
    default = TextFormat()
    changed = {
        Option.DELIMITER: given.delimiter is not None,
        Option.QUOTE: given.quote != default.quote,
        Option.HEADER: not given.header,
        Option.SKIP_ROWS: given.skip_rows > 0,
        Option.NULLS: bool(given.forms.nulls),
        Option.DECIMAL: given.forms.decimal is not None,
    }
    text_only = {
        Option.ENCODING: given.encoding is not None,
        Option.DATE_FORMATS: bool(given.forms.date_formats),
    }
    if source.format != JSON:
        changed |= text_only
    if wrong := [option for option, is_given in changed.items() if is_given]:
        kinds = "CSV or JSON" if set(wrong) & set(text_only) else "CSV"
        raise InvalidRequestError(
            f"{wrong[0]} is an option of {kinds} files, but {source.path} is {_article(source)} file"
        )


def _article(source: Source) -> str:
    name = source.format.upper() if source.format in {JSON, "orc"} else source.format.capitalize()
    return f"{'an' if name[0] in 'AO' else 'a'} {name}"


def _head(stream: object) -> bytes:
    """Return the beginning of a file."""
    parts, size = [], 0
    while size < _HEAD_BYTES:
        data = bytes(stream.read(_HEAD_BYTES - size))  # type: ignore[attr-defined]
        if not data:
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def _refuse_other_formats(source: Source, head: bytes) -> None:
    path = source.path
    if head.startswith(_OLE) or (
        head.startswith(_ZIP) and any(entry in head[:4096] for entry in _ENTRY_OF_EXCEL)
    ):
        raise excel_file(path)
    if head.startswith(_ZIP):
        raise CorruptFileError(f"{path} is a ZIP archive", hint="unzip it and load the files in it")
    if head.startswith(_GZIP):
        raise CorruptFileError(f"{path} is compressed by gzip", hint="let its name end in .gz")
    if head.startswith(_PARQUET):
        raise CorruptFileError(f"{path} is a Parquet file", hint=f"use {Option.FORMAT} parquet")


def _marked_encoding(head: bytes) -> str | None:
    """Return the encoding that the file's byte order mark shows, other than UTF-8."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), None)


def _is_utf_8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder(UTF_8)().decode(head, final=False)
    except UnicodeDecodeError:
        return False
    return True


class _Head:
    """The first rows of a CSV file."""

    def __init__(self, source: Source, head: bytes) -> None:
        text = source.text
        decoder = codecs.getincrementaldecoder(text.encoding or UTF_8)(errors="replace")
        try:
            decoded = decoder.decode(head)
        except UnicodeError as error:
            raise other_encoding(source.path, text.encoding or UTF_8) from error
        lines = StringIO(decoded.lstrip("\ufeff"), newline="")
        for _ in range(text.skip_rows):
            lines.readline()
        self._source = source
        self._is_cut = len(head) >= _HEAD_BYTES
        self._text = lines.read()

    def rows(self, delimiter: str) -> Sequence[Sequence[str]]:
        """Return the first rows; empty if they cannot be parsed."""
        text = replace(self._source.text, delimiter=delimiter)
        reader = csv_reader(StringIO(self._text, newline=""), replace(self._source, text=text))
        rows: list[Sequence[str]] = []
        try:
            rows.extend(row for row, _ in zip(reader, range(_HEAD_ROWS + 1), strict=False) if row)
        except csv.Error:
            return []
        return rows[:-1] if self._is_cut and len(rows) <= _HEAD_ROWS else rows[:_HEAD_ROWS]

    def width(self, text: TextFormat) -> int:
        """Return the number of columns of the first row; 0 for an empty file."""
        rows = self.rows(delimiter_of(replace(self._source, text=text)))
        return len(rows[0]) if rows else 0

    def delimiter(self, columns: Collection[str]) -> str | None:
        """Return the delimiter if the rows show one that is not the default."""
        default = delimiter_of(self._source)
        rows = self.rows(default)
        if not rows or _width(rows) > 1:
            return None
        if len(rows[0]) == 1 and rows[0][0] in columns:
            return None
        quote = self._source.text.quote
        others = [
            x for x in DELIMITER_NAMES if x not in {default, quote} and _width(self.rows(x)) > 1
        ]
        return others[0] if len(others) == 1 else None


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of columns that all rows have; 0 if they differ."""
    widths = {len(row) for row in rows}
    return widths.pop() if len(widths) == 1 else 0


def _names(source: Source, width: int, columns: Collection[str]) -> tuple[str, ...]:
    """Return the names of the columns of a file without a header."""
    if not columns:
        return tuple(f"f{index}" for index in range(width))
    if width and width != len(columns):
        raise BadInputError(
            f"{source.path} has {width} columns, but the table has {len(columns)}",
            hint="a file without a header must have the columns of the table in their order",
        )
    return tuple(columns) if width else ()
