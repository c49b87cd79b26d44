"""CSV and TSV files as batches of texts: one header line, RFC 4180 quoting, UTF-8.

Every column is read as text and parsed by `lake.core.sources.text_values`. So an error can name a bad value, and
types that were inferred from the whole file are the types that are read. An empty cell is NULL; ``""`` in
quotes is the empty text.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterator
from io import TextIOWrapper
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from lake.core.errors import CorruptFileError
from lake.core.sources.discovery import Source, open_stream
from lake.core.sources.inference import Kind, joined, kind_of
from lake.core.storage.storage import Storage

_BLOCK_BYTES = 8 * 1024 * 1024
_NO_ROWS = "Empty CSV file"
_CUT = "unexpected end of data"


def column_names(storage: Storage, source: Source) -> list[str] | None:
    """Return the header's names; None for a file without a byte."""
    with open_stream(storage, source) as stream:
        try:
            reader = _open(stream, source, {})
        except pa.ArrowInvalid as error:
            if str(error).startswith(_NO_ROWS):
                return None
            raise
        return list(reader.schema.names)


def text_batches(storage: Storage, source: Source) -> Iterator[pa.RecordBatch]:
    """Yield the rows, every column a text column.

    Raises:
        CorruptFileError: the file ends inside a quoted value; told after the last row.
    """
    names = column_names(storage, source)
    if names is None:
        return
    types = dict.fromkeys(names, pa.string())
    with open_stream(storage, source) as stream:
        counted = _QuoteCounter(stream)
        yield from _open(counted, source, types)
    # PyArrow takes such an end for the value's. Quotes inside unquoted values may make the number odd, too.
    if counted.quotes % 2 and _ends_in_quotes(storage, source):
        raise CorruptFileError(f"{source.path} ends inside a quoted value: it was cut short")


class _QuoteCounter:
    """A stream that counts the quotes read from it."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.quotes = 0

    def read(self, size: int = -1) -> bytes:
        """Read at most so many bytes."""
        data = self._stream.read(size)
        self.quotes += data.count(b'"')
        return bytes(data)


def _ends_in_quotes(storage: Storage, source: Source) -> bool:
    """Whether the file's last value was begun with a quote that nothing ends."""
    with open_stream(storage, source) as stream:
        text = TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        reader = csv.reader(text, delimiter=_delimiter(source), strict=True)
        limit = csv.field_size_limit(_BLOCK_BYTES)
        try:
            for _ in reader:
                pass
        except csv.Error as error:
            return str(error) == _CUT
        finally:
            csv.field_size_limit(limit)
    return False


def _delimiter(source: Source) -> str:
    return "\t" if ".tsv" in os.path.basename(source.path).lower() else ","


def infer_types(storage: Storage, source: Source, names: Collection[str]) -> dict[str, pa.DataType]:
    """Return the narrowest type of each named column that holds all of its values in the whole file."""
    kinds = dict.fromkeys(names, Kind.NOTHING)
    for batch in text_batches(storage, source):
        for name, kind in kinds.items():
            if kind is not Kind.TEXT:
                kinds[name] = joined(kind, kind_of(batch.column(name)))
    return {
        name: pa.string() if kind is Kind.NOTHING else kind.arrow for name, kind in kinds.items()
    }


def _open(stream: Any, source: Source, types: dict[str, pa.DataType]) -> Any:
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=arrow_csv.ParseOptions(delimiter=_delimiter(source), newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
