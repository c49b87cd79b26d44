"""Rows to files for people and other tools: Parquet, CSV, JSON lines, Arrow.

Text keeps values exact: decimals and times as text, binaries as base64, UUIDs with hyphens; NULL is an empty
CSV cell and the empty text is "" in quotes. What is written here `lake.core.rows.sources` reads back.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType, UUIDType

from lake.core.errors import InvalidRequestError
from lake.core.rows.schema import arrow_schema

PARQUET, CSV, JSON, ARROW = "parquet", "csv", "json", "arrow"
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
}
_BUFFERED_BYTES = 64 * 1024 * 1024


class Sink(Protocol):
    """Takes batches of one schema and writes them to a stream."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    def close(self) -> None:
        """Finish; the stream stays open."""


def open_sink(format_name: str, stream: Any, schema: Schema) -> Sink:
    """Return a sink of a format on a binary stream.

    Raises:
        InvalidRequestError: an unknown format.
    """
    makers: Mapping[str, Callable[[Any, Schema], Sink]] = {
        PARQUET: ParquetSink,
        CSV: CsvSink,
        JSON: JsonSink,
        ARROW: ArrowSink,
    }
    if format_name not in makers:
        raise InvalidRequestError(
            f"--output-format {format_name!r} is none of {', '.join(FORMATS)}"
        )
    return makers[format_name](stream, schema)


class ParquetSink:
    """One Parquet file; row groups of about 64 MiB."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._schema = _without_ids(arrow_schema(schema))
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= _BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._bytes = [], 0

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._writer.close()


class ArrowSink:
    """An Arrow IPC stream."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        self._schema = _without_ids(arrow_schema(schema))
        self._writer = pa.ipc.new_stream(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))

    def close(self) -> None:
        """Finish the stream."""
        self._writer.close()


class CsvSink:
    """CSV with a header."""

    def __init__(self, stream: Any, schema: Schema) -> None:
        from pyarrow import csv  # noqa: PLC0415 - only for such files

        self._kinds = [field.field_type for field in schema.fields]
        self._schema = pa.schema(
            [
                pa.field(item.name, item.type if _csv_writes(item.type) else pa.string())
                for item in arrow_schema(schema)
            ]
        )
        self._writer = csv.CSVWriter(stream, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        columns = [
            column if _csv_writes(column.type) else _texts(column, kind)
            for column, kind in zip(batch.columns, self._kinds, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

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
        lines = [json.dumps(row, ensure_ascii=False) for row in plain_rows(batch, self._schema)]
        if lines:
            self._stream.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Nothing is pending."""


def plain_rows(batch: pa.RecordBatch, schema: Schema) -> list[dict[str, Any]]:
    """Return rows as JSON-ready values."""
    kinds = {item.name: item.field_type for item in schema.fields}
    return [
        {name: _plain(value, kinds.get(name)) for name, value in row.items()}
        for row in _exact(batch).to_pylist()
    ]


def _exact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn nanoseconds, which Python's times cannot hold, into text."""
    columns = [
        column.cast(pa.string())
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _plain(value: Any, kind: IcebergType | None) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value)) if isinstance(kind, UUIDType) else _base64(value)
    if isinstance(value, dict) and isinstance(kind, StructType):
        return {item.name: _plain(value[item.name], item.field_type) for item in kind.fields}
    if isinstance(value, list) and isinstance(kind, MapType):
        return [[_plain(key, kind.key_type), _plain(one, kind.value_type)] for key, one in value]
    if isinstance(value, list) and isinstance(kind, ListType):
        return [_plain(one, kind.element_type) for one in value]
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _csv_writes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_string(kind)
        or types.is_date32(kind)
    )


def _texts(column: pa.Array, kind: Any) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        zone = "Z" if column.type.tz else ""
        digits = pc.strftime(column.cast(pa.timestamp(column.type.unit)), "%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(digits, zone, "") if zone else digits
    if isinstance(kind, UUIDType):
        values = [None if v is None else str(uuid.UUID(bytes=v)) for v in column.to_pylist()]
        return pa.array(values, pa.string())
    if pa.types.is_nested(column.type):
        nested = [None if v is None else json.dumps(_plain(v, kind)) for v in column.to_pylist()]
        return pa.array(nested, pa.string())
    if pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        return pa.array([_plain(value, kind) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def _without_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [pa.field(item.name, _plain_type(item.type), item.nullable) for item in schema]
    )


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a nested type without field metadata."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain_type(f.type), f.nullable) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _plain_type(kind.item_type)))
    if pa.types.is_list(kind):
        inner = kind.value_field
        return pa.list_(pa.field(inner.name, _plain_type(inner.type), inner.nullable))
    return kind
