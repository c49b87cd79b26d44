"""Write rows to files for people and other tools: Parquet, CSV, TSV, JSON lines, Arrow.

In CSV and TSV, NULL is an empty cell and the empty text is "" in quotes; `lake.core.data.columns.text_encoding`
encodes other values. `lake.core.data.sources.batches` can read all of these files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StringType, UUIDType

from lake.core.base.choices import EXPORT_FORMATS
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.columns.nullability import fill_masked
from lake.core.data.columns.text_encoding import cells, json_lines
from lake.core.spec.types.arrow_schema import arrow_schema, parts_of

PARQUET, CSV, TSV, JSON, ARROW = EXPORT_FORMATS
ARROW_STREAM = "arrow-stream"
SUFFIXES = {
    "parquet": PARQUET,
    "pq": PARQUET,
    "csv": CSV,
    "tsv": TSV,
    "json": JSON,
    "jsonl": JSON,
    "ndjson": JSON,
    "arrow": ARROW,
    "ipc": ARROW,
    "feather": ARROW,
    "arrows": ARROW_STREAM,
}
_BUFFERED_BYTES = 64 * 1024 * 1024
# The path of a map's keys in Parquet, below the map, and the physical types of numbers.
_KEY, _INTEGERS = ".key_value.key", ("INT32", "INT64")


class Sink(Protocol):
    """Writes batches of one schema to a stream."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    def close(self) -> None:
        """Finish the file; the stream stays open."""


@contextmanager
def writing(output_format: str, stream: Any, schema: Schema) -> Iterator[Sink]:
    """Open a sink and close it at the end of the block, unless the block fails."""
    sink = open_sink(output_format, stream, schema)
    try:
        yield sink
        sink.close()
    except BaseException:
        if isinstance(sink, ParquetSink):
            sink.abandon()
        raise


def open_sink(output_format: str, stream: Any, schema: Schema) -> Sink:
    """Return a sink that writes a format to a binary stream, sequentially.

    Raises:
        InvalidRequestError: the format is unknown.
    """
    makers: Mapping[str, Callable[[Any, Schema], Sink]] = {
        PARQUET: ParquetSink,
        CSV: CsvSink,
        TSV: TsvSink,
        JSON: JsonSink,
        ARROW: partial(ArrowSink, open_writer=pa.ipc.new_file),
        ARROW_STREAM: partial(ArrowSink, open_writer=pa.ipc.new_stream),
    }
    if output_format not in makers:
        raise InvalidRequestError(
            f"{Option.OUTPUT_FORMAT} {output_format!r} is not one of {', '.join(EXPORT_FORMATS)}"
        )
    return makers[output_format](stream, schema)


class ParquetSink:
    """One Parquet file; row groups of about 64 MiB."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._schema, self._stored = _plain_schema(schema), arrow_schema(schema)
        chosen = _without_numbered(self._stored)
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=chosen,
            write_statistics=chosen,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._waiting.append(with_types(batch, self._stored))
        self._bytes += batch.nbytes
        if self._bytes >= _BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            rows = fill_masked(pa.Table.from_batches(self._waiting))
            self._writer.write_table(rows.cast(self._schema))
        self._waiting, self._bytes = [], 0

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Prevent the writer's destructor from finishing the file."""
        self._writer.is_open = False


def _without_numbered(schema: pa.Schema) -> list[str] | bool:
    """Return the leaf columns to write with dictionaries and statistics; True for all.

    Those of maps with numbers as keys, such as the metrics of columns, are left out: their values differ, so
    dictionaries and statistics take longer than all the rest and help no reader.
    """
    if not any(map(_has_numbered, schema.types)):
        return True
    empty = BytesIO()
    pq.write_table(schema.empty_table(), empty)
    columns = list(pq.read_metadata(empty).schema)
    numbered = tuple(
        column.path.removesuffix(_KEY)
        for column in columns
        if column.path.endswith(_KEY) and column.physical_type in _INTEGERS
    )
    return [column.path for column in columns if not column.path.startswith(numbered)]


def _has_numbered(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return bool(pa.types.is_integer(kind.key_type)) or _has_numbered(kind.item_type)
    return pa.types.is_nested(kind) and any(
        _has_numbered(kind.field(number).type) for number in range(kind.num_fields)
    )


class ArrowSink:
    """Arrow IPC: a file, which readers may map into memory, or a stream, which can be read while it is written."""

    def __init__(self, stream: Any, schema: Schema, open_writer: Callable[..., Any]) -> None:
        self._schema = _plain_schema(schema)
        self._writer = open_writer(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(with_types(batch, self._schema))

    def close(self) -> None:
        """Finish."""
        self._writer.close()


class CsvSink:
    """CSV with a header; all texts are in quotes, so that none is read as NULL or as a number.

    NaN and infinities are written as Spark reads them: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """

    def __init__(self, stream: Any, schema: Schema) -> None:
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
            column if _csv_writes(column.type) else cells(column, type_)
            for column, type_ in zip(batch.columns, self._kinds, strict=True)
        ]
        if all(_is_finite(column) for column in columns):
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        else:
            self._write_non_finite(columns)

    def _write_non_finite(self, columns: list[pa.Array]) -> None:
        """Write rows with NaN or infinities; Spark reads Arrow's words for these as NULL."""
        named = [column if _is_finite(column) else _words(column) for column in columns]
        batch = pa.RecordBatch.from_arrays(named, self._schema.names)
        csv.write_csv(batch, self._stream, csv.WriteOptions(include_header=False))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


class TsvSink:
    """Cells separated by tabs, below a header; a cell is in quotes only if a reader needs them.

    Those are texts with a tab, a quote or the end of a line, and the empty text, which differs from NULL by them.
    Tools that know columns only, such as ``cut`` and ``awk``, get the other texts as they are.
    """

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._stream = stream
        self._kinds = [field.field_type for field in schema.fields]
        names = pa.array([field.name for field in schema.fields], pa.large_string())
        self._stream.write("\t".join(_tab_cells(names, StringType()).to_pylist()).encode() + b"\n")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        if not batch.num_rows:
            return
        columns = [
            _tab_cells(column, kind)
            for column, kind in zip(batch.columns, self._kinds, strict=True)
        ]
        nulls = {"null_handling": "replace", "null_replacement": ""}
        lines = pc.binary_join_element_wise(*columns, pa.scalar("\t", pa.large_string()), **nulls)
        # The last buffer contains the texts one after the other.
        ended = pc.binary_join_element_wise(
            lines, *(pa.scalar(text, pa.large_string()) for text in ("", "\n"))
        )
        self._stream.write(
            memoryview(ended.buffers()[-1])[: pc.sum(pc.binary_length(ended)).as_py()]
        )

    def close(self) -> None:
        """Do nothing; no rows are pending."""


def _tab_cells(column: pa.Array, kind: IcebergType) -> pa.Array:
    """Return a column as cells of TSV, large texts so that a batch may be longer than 2 GiB; NULL stays NULL."""
    if pa.types.is_floating(column.type):
        return _words(column).cast(pa.large_string())
    texts = (column if _csv_writes(column.type) else cells(column, kind)).cast(pa.large_string())
    special = pc.or_(pc.equal(texts, ""), pc.match_substring_regex(texts, r'[\t\r\n"]'))
    if not pc.any(special, min_count=0).as_py():
        return texts
    quote = pa.scalar('"', pa.large_string())
    doubled = pc.replace_substring(texts, '"', '""')
    enclosed = pc.binary_join_element_wise(quote, doubled, quote, pa.scalar("", pa.large_string()))
    return pc.if_else(special, enclosed, texts)


class JsonSink:
    """One JSON object per line."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._stream = stream
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        for line_block in _buffers(json_lines(batch, self._schema)):
            self._stream.write(line_block)

    def close(self) -> None:
        """Do nothing; no rows are pending."""


def plain_rows(batch: pa.RecordBatch, schema: Schema) -> list[dict[str, Any]]:
    """Return rows as JSON-ready values."""
    return [json.loads(line) for line in json_lines(batch, schema).to_pylist()]


def _buffers(texts: pa.Array) -> list[memoryview]:
    """Return the contiguous buffer of all texts."""
    if not len(texts):
        return []
    _, offsets, values = texts.buffers()
    ends = memoryview(offsets).cast("i")
    return [memoryview(values)[ends[texts.offset] : ends[texts.offset + len(texts)]]]


def _csv_writes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(type_)
        or types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_decimal(type_)
        or types.is_string(type_)
    )


def _is_finite(column: pa.Array) -> bool:
    """Whether a column has no NaN and no infinity."""
    if not pa.types.is_floating(column.type):
        return True
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def _words(column: pa.Array) -> pa.Array:
    """Return numbers as texts, with Java's words for NaN and the infinities."""
    texts = column.cast(pa.string())
    for arrow_word, java_word in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, arrow_word), java_word, texts)
    return texts


def _plain_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema without field ids, which are meaningful in one table only."""
    return pa.schema(
        [
            pa.field(item.name, _plain_type(item.type, field.field_type), item.nullable)
            for item, field in zip(arrow_schema(schema), schema.fields, strict=True)
        ]
    )


def _plain_type(type_: pa.DataType, iceberg_type: IcebergType) -> pa.DataType:
    if isinstance(iceberg_type, UUIDType):
        return pa.uuid()
    parts = [part.field_type for part in parts_of(iceberg_type)]
    if pa.types.is_struct(type_):
        return pa.struct(list(map(_plain_field, type_, parts)))
    if pa.types.is_map(type_):
        return pa.map_(*map(_plain_field, (type_.key_field, type_.item_field), parts))
    if pa.types.is_list(type_):
        return pa.list_(_plain_field(type_.value_field, parts[0]))
    return type_


def _plain_field(item: pa.Field, iceberg_type: IcebergType) -> pa.Field:
    return pa.field(item.name, _plain_type(item.type, iceberg_type), item.nullable)


def with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the types of a schema, which may be extension types in place of those that store them."""
    columns = [
        column if column.type == item.type else column.cast(item.type)
        for column, item in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
