"""Decode Avro records into Arrow columns that are named by Iceberg field id.

The encoding of a nested record is the encodings of its fields, one after the other. So nested records are
flattened in the schema alone: every leaf becomes a column, columns that were not requested are skipped during
decoding, and empty records, which the decoder does not support, disappear. Logical types are dropped as well:
Iceberg's schema defines the meaning of a value.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.io.avro.container import Block, plain_container, runs

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_MAX_SCHEMA_NODES = 20_000
_MAX_FIXED_BYTES = 64 * 1024
# The size of the writes that pass the blocks to the decoder.
_WRITTEN_BYTES = 1024 * 1024
# The decoder holds all records of a batch as objects, which take many times the bytes of their encoding.
_RUN_BYTES = 4 * 1024 * 1024
# The decoder has as many threads as there are processors.
_KEEPING_THREADS = 8
_PURGE_DELAY = "MIMALLOC_PURGE_DELAY"
_IMPORTING = threading.Lock()


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
    reader = _SchemaReader(records)
    reader.record(json.loads(schema_json), "")
    flat = {"type": "record", "name": "flat", "fields": reader.fields}
    blank = b"".join(_blank(entry["type"]) for entry in reader.fields)
    return Layout(json.dumps(flat), blank, frozenset(reader.columns))


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


def _decoder() -> tuple[Any, Any]:
    """Import the decoder, which reads the settings of its allocator from the environment then.

    The allocator would keep the memory of each of its threads, in pages of 2 MiB. To get memory from the system again
    takes as long as to decode into it, so few threads may keep it for a second. Processes that this one starts keep
    none.
    """
    given = os.environ.get(_PURGE_DELAY)
    if given is None and "datafusion" not in sys.modules:
        keeps = (os.cpu_count() or 1) <= _KEEPING_THREADS
        os.environ[_PURGE_DELAY] = "1000" if keeps else "0"
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415 - costs 0.3 s

    os.environ[_PURGE_DELAY] = given or "0"
    return SessionConfig, SessionContext


def _is_blank(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_blank(part) for part in value.values())
    return not value or (isinstance(value, bytes) and not any(value))


@dataclass(slots=True)
class _SchemaReader:
    """Walks a schema, resolves names, and collects flat fields."""

    records: frozenset[int]
    fields: list[dict[str, Any]] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    named: dict[str, Any] = field(default_factory=dict)
    nodes: int = 0

    def record(self, schema: Any, prefix: str) -> None:
        """Add the fields of a record as columns."""
        for entry in self._fields(schema):
            field_id = entry.get("field-id")
            column = f"{prefix}{field_id}"
            kind = entry["type"]
            if isinstance(field_id, int) and field_id in self.records:
                self.record(self._definition(kind), f"{column}.")
                continue
            resolved = self._type(kind)
            if _is_empty(resolved):
                continue
            if not isinstance(field_id, int):
                column = f"unknown {len(self.fields)}"
            elif column in self.columns:
                raise ValueError(f"two fields with id {field_id}")
            else:
                self.columns.add(column)
            self.fields.append({"name": column, "type": resolved})

    def _fields(self, schema: Any) -> list[dict[str, Any]]:
        fields = schema.get("fields") if isinstance(schema, dict) else None
        if schema is None or not isinstance(fields, list) or schema.get("type") != "record":
            raise ValueError("a record is expected")
        for entry in fields:
            if not isinstance(entry, dict) or "type" not in entry:
                raise ValueError("a field has no type")
        return fields

    def _definition(self, kind: Any) -> Any:
        """Return the record definition of a type, which may be wrapped or referred to by name."""
        while isinstance(kind, dict) and isinstance(kind.get("type"), dict):
            kind = kind["type"]
        return kind

    def _type(self, kind: Any) -> Any:
        """Return a type without names, logical types and documentation."""
        self._count()
        while isinstance(kind, dict) and isinstance(kind.get("type"), (dict, list)):
            kind = kind["type"]
        if isinstance(kind, list):
            return self._union(kind)
        if isinstance(kind, dict):
            return self._complex(kind)
        return self._by_name(kind)

    def _complex(self, kind: dict[str, Any]) -> Any:
        name = kind.get("type")
        if name == "record":
            return self._define(kind, self._nested_record(kind))
        if name == "fixed":
            return self._define(kind, self._fixed(kind))
        if name == "array":
            return {"type": "array", "items": self._item(kind.get("items"))}
        if name == "map":
            return {"type": "map", "values": self._item(kind.get("values"))}
        return self._by_name(name)

    def _by_name(self, kind: Any) -> Any:
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return kind
        if not isinstance(kind, str) or kind not in self.named:
            raise ValueError(f"an unknown type {str(kind)[:40]!r}")
        # A copy: the decoder requires a different name for each definition.
        return self._renamed(self.named[kind])

    def _renamed(self, kind: Any) -> Any:
        self._count()
        if isinstance(kind, list):
            return [self._renamed(branch) for branch in kind]
        if not isinstance(kind, dict):
            return kind
        copy = {key: self._renamed(value) for key, value in kind.items()}
        if kind["type"] in ("record", "fixed"):
            copy["name"] = f"t{self.nodes}"
        return copy

    def _union(self, branches: list[Any]) -> Any:
        resolved = [self._type(branch) for branch in branches]
        if len(resolved) != 2 or resolved.count("null") != 1:  # noqa: PLR2004 - null and another
            raise ValueError("a union of something other than null and one type")
        return resolved

    def _nested_record(self, kind: dict[str, Any]) -> Any:
        fields: list[dict[str, Any]] = []
        for entry in self._fields(kind):
            resolved = self._type(entry["type"])
            if not _is_empty(resolved):
                field_id = entry.get("field-id")
                label = f"{field_id}" if isinstance(field_id, int) else f"unknown {len(fields)}"
                fields.append({"name": label, "type": resolved})
        if len({entry["name"] for entry in fields}) != len(fields):
            raise ValueError("two fields with one id")
        return {"type": "record", "name": f"t{self.nodes}", "fields": fields}

    def _fixed(self, kind: dict[str, Any]) -> Any:
        size = kind.get("size")
        if not isinstance(size, int) or not 0 < size <= _MAX_FIXED_BYTES:
            raise ValueError(f"a fixed type of {str(size)[:40]} bytes")
        return {"type": "fixed", "name": f"t{self.nodes}", "size": size}

    def _define(self, kind: dict[str, Any], resolved: Any) -> Any:
        name, namespace = kind.get("name"), kind.get("namespace")
        if isinstance(name, str):
            self.named[name] = resolved
            self.named[name.rpartition(".")[2]] = resolved
            if isinstance(namespace, str):
                self.named[f"{namespace}.{name}"] = resolved
        return resolved

    def _item(self, kind: Any) -> Any:
        # A list whose items have no bytes could declare any length.
        resolved = self._type(kind)
        if _is_empty(resolved):
            raise ValueError("a list of nothing")
        return resolved

    def _count(self) -> None:
        # The size of names that refer to records of names doubles with every level.
        self.nodes += 1
        if self.nodes > _MAX_SCHEMA_NODES:
            raise ValueError("the schema is too large")


def _blank(kind: Any) -> bytes:
    """Return the shortest value of a type: null, zero or empty."""
    if isinstance(kind, list):
        return b"\x00" if kind[0] == "null" else b"\x02"
    if isinstance(kind, dict) and kind["type"] == "record":
        return b"".join(_blank(entry["type"]) for entry in kind["fields"])
    if isinstance(kind, dict) and kind["type"] == "fixed":
        return bytes(kind["size"])
    return bytes({"float": 4, "double": 8}.get(str(kind), 1))


def _is_empty(kind: Any) -> bool:
    """Whether values of this type are encoded in no bytes."""
    if isinstance(kind, dict) and kind["type"] == "record":
        return not kind["fields"]
    return bool(kind == "null")
