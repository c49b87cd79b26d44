"""CSV and TSV files as batches of texts: one header line, RFC 4180 quoting, UTF-8.

Every column is read as text and parsed by `lake.core.rows.texts`, so that a bad value can be named and what was
inferred over the whole file is what is read. An empty cell is NULL, ``""`` in quotes is the empty text.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from lake.core.rows.inference import Kind, joined, kind_of
from lake.core.rows.sources import Source, open_stream
from lake.core.table.storage import Storage

_BLOCK_BYTES = 8 * 1024 * 1024
_NO_ROWS = "Empty CSV file"


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
    """Yield the rows, every column a text column."""
    names = column_names(storage, source)
    if names is None:
        return
    types = dict.fromkeys(names, pa.string())
    with open_stream(storage, source) as stream:
        yield from _open(stream, source, types)


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
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - only for such files

    tab = ".tsv" in os.path.basename(source.path).lower()
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=arrow_csv.ParseOptions(
            delimiter="\t" if tab else ",", newlines_in_values=True
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
