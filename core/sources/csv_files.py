"""Read CSV and TSV files as batches of strings: one header line, RFC 4180 quoting, UTF-8.

Every column is read as text and parsed by `lake.core.sources.text_values`. So errors can show the invalid value,
and types inferred from the whole file are the types that are read. An empty cell is NULL; ``""`` in quotes is the
empty text.
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
from lake.core.sources.inference import InferredType, infer_type, joined
from lake.core.storage.storage import Storage

_BLOCK_BYTES = 8 * 1024 * 1024
_NO_ROWS = "Empty CSV file"
_CUT = "unexpected end of data"


def column_names(storage: Storage, source: Source) -> list[str] | None:
    """Return the column names in the header; None for an empty file."""
    with open_stream(storage, source) as stream:
        try:
            reader = _open(stream, source, {})
        except pa.ArrowInvalid as error:
            if str(error).startswith(_NO_ROWS):
                return None
            raise
        return list(reader.schema.names)


def text_batches(storage: Storage, source: Source) -> Iterator[pa.RecordBatch]:
    """Yield the rows, with all columns as text.

    Raises:
        CorruptFileError: the file ends inside a quoted value; raised after the last row.
    """
    names = column_names(storage, source)
    if names is None:
        return
    types = dict.fromkeys(names, pa.string())
    with open_stream(storage, source) as stream:
        counted = _QuoteCounter(stream)
        yield from _open(counted, source, types)
    # PyArrow accepts such a value. The number of quotes may also be odd because of quotes in unquoted values.
    if counted.quotes % 2 and _ends_in_quotes(storage, source):
        raise CorruptFileError(f"{source.path} ends inside a quoted value: the file is incomplete")


class _QuoteCounter:
    """A stream that counts the quotes read from it."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.quotes = 0

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes."""
        data = self._stream.read(size)
        self.quotes += data.count(b'"')
        return bytes(data)


def _ends_in_quotes(storage: Storage, source: Source) -> bool:
    """Whether the file's last value begins with a quote that is not closed."""
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
    """Return the narrowest type for all values of each named column in the whole file."""
    kinds = dict.fromkeys(names, InferredType.NOTHING)
    for batch in text_batches(storage, source):
        for name, kind in kinds.items():
            if kind is not InferredType.TEXT:
                kinds[name] = joined(kind, infer_type(batch.column(name)))
    return {
        name: pa.string() if kind is InferredType.NOTHING else kind.arrow
        for name, kind in kinds.items()
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
