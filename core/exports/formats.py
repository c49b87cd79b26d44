"""Rows to files for people and other tools: Parquet, CSV, JSON lines, Arrow.

In CSV, NULL is an empty cell and the empty text is "" in quotes; `lake.core.columns.text_encoding` tells how other
values are written. What is written here `lake.core.sources.batches` reads back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, UUIDType

from lake.core.columns.nullability import fill_masked
from lake.core.columns.text_encoding import cells, json_lines
from lake.core.errors import InvalidRequestError
from lake.core.types.arrow_schema import arrow_schema

PARQUET, CSV, JSON, ARROW, ARROW_STREAM = "parquet", "csv", "json", "arrow", "arrow-stream"
FORMATS = (PARQUET, CSV, JSON, ARROW)
SUFFIXES = {
    "parquet": PARQUET,
    "pq": PARQUET,
    "csv": CSV,
    "json": JSON,
    "jsonl": JSON,
    "ndjson": JSON,
    "arrow": ARROW,
    "ipc": ARROW,
    "feather": ARROW,
    "arrows": ARROW_STREAM,
}
_BUFFERED_BYTES = 64 * 1024 * 1024


class Sink(Protocol):
    """Takes batches of one schema and writes them to a stream."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    def close(self) -> None:
        """Finish; the stream stays open."""


@contextmanager
def writing(format_name: str, stream: Any, schema: Schema) -> Iterator[Sink]:
    """Open a sink that is closed at the block's end, unless the block fails."""
    sink = open_sink(format_name, stream, schema)
    try:
        yield sink
        sink.close()
    except BaseException:
        if isinstance(sink, ParquetSink):
            sink.abandon()
        raise


def open_sink(format_name: str, stream: Any, schema: Schema) -> Sink:
    """Return a sink of a format on a binary stream, which is only written to from front to back.

    Raises:
        InvalidRequestError: an unknown format.
    """
    makers: Mapping[str, Callable[[Any, Schema], Sink]] = {
        PARQUET: ParquetSink,
        CSV: CsvSink,
        JSON: JsonSink,
        ARROW: partial(ArrowSink, open_writer=pa.ipc.new_file),
        ARROW_STREAM: partial(ArrowSink, open_writer=pa.ipc.new_stream),
    }
    if format_name not in makers:
        raise InvalidRequestError(
            f"--output-format {format_name!r} is none of {', '.join(FORMATS)}"
        )
    return makers[format_name](stream, schema)


class ParquetSink:
    """One Parquet file; row groups of about 64 MiB."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._schema = _plain_schema(schema)
        self._writer = pq.ParquetWriter(
            stream, self._schema, compression="zstd", write_page_checksum=True
        )
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._waiting.append(_dressed(batch, self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= _BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(fill_masked(pa.Table.from_batches(self._waiting)))
        self._waiting, self._bytes = [], 0

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Keep the writer from finishing the file when it is forgotten."""
        self._writer.is_open = False


class ArrowSink:
    """Arrow IPC: a file, which readers may map into memory, or a stream, which is read while it is written."""

    def __init__(self, stream: Any, schema: Schema, open_writer: Callable[..., Any]) -> None:
        self._schema = _plain_schema(schema)
        self._writer = open_writer(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(_dressed(batch, self._schema))

    def close(self) -> None:
        """Finish."""
        self._writer.close()


class CsvSink:
    """CSV with a header; all texts are in quotes, so that none is taken for NULL or a number.

    What is not a finite number is written as Spark reads it: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """

    def __init__(self, stream: Any, schema: Schema) -> None:
        from pyarrow import csv  # noqa: PLC0415 - only for such files

        self._kinds = [field.field_type for field in schema.fields]
        self._schema = pa.schema(
            [
                pa.field(item.name, item.type if _csv_writes(item.type) else pa.string())
                for item in arrow_schema(schema)
            ]
        )
        self._stream = stream
        self._writer = csv.CSVWriter(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        columns = [
            column if _csv_writes(column.type) else cells(column, kind)
            for column, kind in zip(batch.columns, self._kinds, strict=True)
        ]
        if all(_is_finite(column) for column in columns):
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        else:
            self._write_words(columns)

    def _write_words(self, columns: list[pa.Array]) -> None:
        """Write rows in which some numbers are words; Arrow has its own for them, which Spark reads as NULL."""
        from pyarrow import csv  # noqa: PLC0415 - only for such files

        named = [column if _is_finite(column) else _words(column) for column in columns]
        batch = pa.RecordBatch.from_arrays(named, self._schema.names)
        csv.write_csv(batch, self._stream, csv.WriteOptions(include_header=False))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


class JsonSink:
    """One JSON object a line."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._stream = stream
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        for line_block in _buffers(json_lines(batch, self._schema)):
            self._stream.write(line_block)

    def close(self) -> None:
        """Nothing is pending."""


def plain_rows(batch: pa.RecordBatch, schema: Schema) -> list[dict[str, Any]]:
    """Return rows as JSON-ready values."""
    return [json.loads(line) for line in json_lines(batch, schema).to_pylist()]


def _buffers(texts: pa.Array) -> list[memoryview]:
    """Return all texts one behind the other, as they lie in memory."""
    if not len(texts):
        return []
    _, offsets, values = texts.buffers()
    ends = memoryview(offsets).cast("i")
    return [memoryview(values)[ends[texts.offset] : ends[texts.offset + len(texts)]]]


def _csv_writes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
    )


def _is_finite(column: pa.Array) -> bool:
    """Whether a column has no NaN and no infinity."""
    if not pa.types.is_floating(column.type):
        return True
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def _words(column: pa.Array) -> pa.Array:
    """Return numbers as texts, with Java's words for NaN and the infinities."""
    texts = column.cast(pa.string())
    for ours, javas in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, ours), javas, texts)
    return texts


def _plain_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema without field ids, which mean something in one table only."""
    return pa.schema(
        [
            pa.field(item.name, _plain_type(item.type, field.field_type), item.nullable)
            for item, field in zip(arrow_schema(schema), schema.fields, strict=True)
        ]
    )


def _plain_type(kind: pa.DataType, meaning: IcebergType | None = None) -> pa.DataType:
    if isinstance(meaning, UUIDType):
        return pa.uuid()
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(item) for item in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return kind


def _plain_field(item: pa.Field) -> pa.Field:
    return pa.field(item.name, _plain_type(item.type), item.nullable)


def _dressed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.ExtensionArray.from_storage(item.type, column)
        if isinstance(item.type, pa.BaseExtensionType)
        else column
        for column, item in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
