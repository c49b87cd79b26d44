"""What a message has besides its value: its key, its headers, its place in the topic and its time.

The names and types are those of Spark's Kafka source; Flink's connector uses the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.errors import BadInputError
from lake.core.data.schemas.source_checks import SourceColumns, check_sources

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

# What a message contains: a value for each metadata column.
Values = tuple[Any, ...]

_NO_TIMESTAMP = 0
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "headers": pa.list_(_HEADER),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
}


def metadata_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema of metadata columns, given by the name of the field that each contains."""
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in columns.items()])


def to_batch(columns: Mapping[str, str], rows: Sequence[Values]) -> pa.RecordBatch:
    """Return the metadata columns of messages."""
    schema = metadata_schema(columns)
    arrays = [
        pa.array([row[index] for row in rows], kind) for index, kind in enumerate(schema.types)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def reader_of(columns: Mapping[str, str]) -> Callable[[Any], Values]:
    """Return a function that reads the metadata columns of a message of confluent-kafka.

    The function raises `BadInputError` if the name of a header is not UTF-8.
    """
    readers = [_READERS[kind] for kind in columns.values()]
    return lambda message: tuple(read(message) for read in readers)


def _key(message: Any) -> bytes | None:
    key = message.key()
    return key.encode() if isinstance(key, str) else key


def _headers(message: Any) -> list[dict[str, Any]] | None:
    try:
        found: Iterable[tuple[str, bytes | None]] | None = message.headers()
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"the message at offset {message.offset()} of partition {message.partition()} of topic "
            f"{message.topic()} has a header whose name is not UTF-8"
        ) from error
    return None if found is None else [{"key": name, "value": value} for name, value in found]


def _timestamp(message: Any) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == _NO_TIMESTAMP else milliseconds


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "key": _key,
    "headers": _headers,
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": _timestamp,
}


def weight(values: Values) -> int:
    """Return about how many bytes the keys and headers among some values have."""
    size = 0
    for value in values:
        if isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, list):
            size += sum(len(item["key"]) + len(item["value"] or b"") for item in value)
    return size


def check_columns(table: Table, topic: str, columns: Mapping[str, str], *, evolve: bool) -> None:
    """Refuse metadata columns that do not fit a table.

    Raises:
        BadInputError: the table lacks a column and does not get it, or a column has another type.
    """
    if columns:
        known = Schema(*(item for item in table.schema.fields if item.name in columns))
        found = SourceColumns(f"the metadata of topic {topic}", metadata_schema(columns))
        check_sources(known, [found], evolve=evolve)
