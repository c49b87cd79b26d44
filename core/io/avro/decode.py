"""Decode Avro records into Arrow columns that are named by Iceberg field id.

The encoding of a nested record is the encodings of its fields, one after the other. So nested records are
flattened in the schema alone: every leaf becomes a column, columns that were not requested are skipped during
decoding, and empty records, which the decoder does not support, disappear. Logical types are dropped as well:
Iceberg's schema defines the meaning of a value.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.io.avro.container import Block, plain_container, runs
from lake.core.io.avro.few_records import decode_few
from lake.core.io.avro.schema import AvroType, number, parse_schema

# The size of the writes that pass the blocks to the decoder.
_WRITTEN_BYTES = 1024 * 1024
# A call of the decoder takes 2 ms; the memory of larger batches is not worth what they save.
_RUN_BYTES = 8 * 1024 * 1024
# Records of at most this size are decoded in Python: the decoder takes 2 ms for each call, and 0.3 s to be imported.
_FEW_BYTES = 16 * 1024
# The decoder has as many threads as there are processors.
_KEEPING_THREADS = 8
_PURGE_DELAY, _ALLOW_THP = "MIMALLOC_PURGE_DELAY", "MIMALLOC_ALLOW_THP"
_IMPORTING = threading.Lock()
Label: TypeAlias = Callable[[int, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """A record's schema, flattened.

    Args:
        schema_json: the flat Avro schema; files whose layouts are equal decode together.
        blank: the encoding of a record of nulls, zeros and empty values; no record has fewer bytes.
        columns: the columns that have a field id. A column's name is that id, prefixed with the ids of the
            records that contain it: ``2.102.1000``.
    """

    schema_json: str
    blank: bytes
    columns: frozenset[str]


def layout_of(schema_json: bytes, records: frozenset[int], *, name: str) -> Layout:
    """Flatten a record schema.

    Args:
        schema_json: an Avro schema with Iceberg's ``field-id`` on its fields; it is untrusted input.
        records: ids of the record fields to flatten.
        name: the file's location, for messages.

    Raises:
        CorruptFileError: it is not a record schema, or not one that Iceberg writes.
    """
    try:
        return _flatten(schema_json, records)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{name}: no usable Avro schema: {error}") from error


@lru_cache(maxsize=256)
def _flatten(schema_json: bytes, records: frozenset[int]) -> Layout:
    schema = parse_schema(schema_json)
    for node in schema.nodes():
        if node.name == "enum":
            raise ValueError("an unknown type 'enum'")
        # A list whose items have no bytes could declare any length.
        if node.name in {"array", "map"} and node.parts[0].is_empty:
            raise ValueError("a list of nothing")
    return flat_layout(_columns(schema, records, ""), _label)


def _columns(
    schema: AvroType, records: frozenset[int], prefix: str
) -> Iterator[tuple[str | None, AvroType]]:
    """Yield the fields of a record and of the records in it that are flattened."""
    if schema.name != "record":
        raise ValueError("a record is expected")
    for attributes, kind in schema.fields:
        field_id = number(attributes, "field-id")
        if field_id in records:
            yield from _columns(kind, records, f"{prefix}{field_id}.")
        else:
            yield None if field_id is None else f"{prefix}{field_id}", kind


def _label(index: int, attributes: Mapping[str, Any]) -> str:
    field_id = number(attributes, "field-id")
    return f"unknown {index}" if field_id is None else f"{field_id}"


def flat_layout(columns: Iterable[tuple[str | None, AvroType]], label: Label) -> Layout:
    """Return the layout of records with these fields; a field without bytes has no column.

    Args:
        columns: the name and the type of each field; None for a field that is never decoded.
        label: returns the name of a field of a nested record, by its position and its attributes.

    Raises:
        ValueError: two fields have one name, or there is a union that is not of null and one other type.
    """
    fields: list[dict[str, Any]] = []
    blanks, names, numbers = list[bytes](), set[str](), count()
    for name, kind in columns:
        if kind.is_empty:
            continue
        if name in names:
            raise ValueError(f"two fields with id {name}")
        if name is not None:
            names.add(name)
        stored = _stored(kind, label, numbers)
        fields.append({"name": name or f"unknown {len(fields)}", "type": stored})
        blanks.append(_blank(kind))
    flat = {"type": "record", "name": "flat", "fields": fields}
    return Layout(json.dumps(flat), b"".join(blanks), frozenset(names))


def _stored(kind: AvroType, label: Label, numbers: Iterator[int]) -> Any:
    """Return a type for the decoder, JSON-ready, with new names: it requires another name for each definition."""
    match kind.name:
        case "record":
            named = [(label(index, item), part) for index, (item, part) in enumerate(kind.fields)]
            parts = {name: part for name, part in named if not part.is_empty}
            if len(parts) < sum(not part.is_empty for part in kind.parts):
                raise ValueError("two fields with one id")
            fields = [
                {"name": name, "type": _stored(part, label, numbers)}
                for name, part in parts.items()
            ]
            return {"type": "record", "name": f"t{next(numbers)}", "fields": fields}
        case "array":
            return {"type": "array", "items": _stored(kind.parts[0], label, numbers)}
        case "map":
            # A map has the same bytes as an array of pairs.
            key = AvroType("string", {})
            pairs = AvroType("record", {"fields": [{}, {}]}, [key, *kind.parts])
            return {"type": "array", "items": _stored(pairs, label, numbers)}
        case "union":
            if kind.null_at is None:
                raise ValueError("a union of something other than null and one type")
            return [_stored(branch, label, numbers) for branch in kind.parts]
        case "fixed":
            size = kind.attributes["size"]
            return {"type": "fixed", "name": f"t{next(numbers)}", "size": size}
    return "int" if kind.name == "enum" else kind.name


def decode(
    layout: Layout,
    blocks: Sequence[Block],
    columns: Sequence[str],
    *,
    name: str,
    reduced: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """Decode columns of blocks that share a layout.

    Args:
        layout: the result of `layout_of` for their schema.
        blocks: the records.
        columns: the names of the columns to decode, all in ``layout.columns``; at least one.
        name: the location of the file that contains the blocks, for messages.
        reduced: returns what is needed of the rows of some blocks, so that less is held at a time; None for all.

    Raises:
        CorruptFileError: the bytes do not match the schema.
    """
    if any(block.objects * len(layout.blank) > len(block.data) for block in blocks):
        raise CorruptFileError(
            f"{name}: a block is too small for the number of objects that it declares"
        )
    parts = []
    for run in list(runs(blocks, lambda block: len(block.data), _RUN_BYTES)) or [[]]:
        part = _decode_run(layout, run, columns, name)
        parts.append(part if reduced is None else reduced(part))
    return pa.concat_tables(parts)


def _decode_run(
    layout: Layout, blocks: Sequence[Block], columns: Sequence[str], name: str
) -> pa.Table:
    rows = sum(block.objects for block in blocks)
    if sum(len(block.data) for block in blocks) <= _FEW_BYTES:
        joined = b"".join(block.data for block in blocks)
        return decode_few(layout.schema_json, rows, joined, columns, name)
    # All blocks become one, with a blank record after the last. Surplus or missing bytes shift that
    # record. The decoder does not end when a block has more bytes than its records need, so it is
    # not asked for another batch after the one that ends with the blank record.
    data = [*(block.data for block in blocks), layout.blank]
    descriptor, path = tempfile.mkstemp(prefix="lake-", suffix=".avro")
    try:
        with os.fdopen(descriptor, "wb", _WRITTEN_BYTES) as sink:
            sink.writelines(plain_container(layout.schema_json, rows + 1, data))
        table = _query(path, rows + 1, columns, name)
    finally:
        os.unlink(path)
    last = table.slice(rows).to_pylist()
    if len(last) != 1 or not all(_is_blank(value) for value in last[0].values()):
        raise CorruptFileError(f"{name} contains other records than its blocks declare")
    return table.slice(0, rows)


def _query(path: str, rows: int, columns: Sequence[str], name: str) -> pa.Table:
    with _IMPORTING:
        SessionConfig, SessionContext = _decoder()  # noqa: N806 - classes
    config = SessionConfig().with_target_partitions(1).with_batch_size(rows)
    quoted = [f'"{column}"' for column in columns]
    try:
        records = SessionContext(config).read_avro(path).select(*quoted).limit(rows)
        return records.to_arrow_table()
    except BaseException as error:
        # The decoder raises plain `Exception`; a panic in it is a `BaseException` of a class that
        # cannot be imported.
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise CorruptFileError(f"{name} contains records that do not decode") from error
        if isinstance(error, pa.ArrowException):
            raise CorruptFileError(f"{name} contains invalid values") from error
        raise


@cache
def _decoder() -> tuple[Any, Any]:
    """Import the decoder, which reads the settings of its allocator from the environment then.

    The allocator would keep the memory of each of its threads, in pages of 2 MiB. To get memory from the system again
    takes as long as to decode into it, so few threads may keep it for a second. The environment is as before
    afterwards: PyArrow in Spark's workers would have the same settings, with which it rewrites files 40 % slower.
    """
    given = {name: os.environ.get(name) for name in (_PURGE_DELAY, _ALLOW_THP)}
    keeps = (os.cpu_count() or 1) <= _KEEPING_THREADS
    os.environ.setdefault(_PURGE_DELAY, "1000" if keeps else "0")
    os.environ.setdefault(_ALLOW_THP, "0")
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415 - costs 0.3 s

    for name, value in given.items():
        if value is None:
            del os.environ[name]
    return SessionConfig, SessionContext


def _blank(kind: AvroType) -> bytes:
    """Return the shortest value of a type: null, zero or empty."""
    match kind.name:
        case "record":
            return b"".join(map(_blank, kind.parts))
        case "union":
            return b"\x02" if kind.null_at else b"\x00"
        case "fixed":
            return bytes(kind.attributes["size"])
    return bytes({"null": 0, "float": 4, "double": 8}.get(kind.name, 1))


def _is_blank(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_blank(part) for part in value.values())
    return not value or (isinstance(value, bytes) and not any(value))
