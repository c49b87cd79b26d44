"""Decode one Avro record that is stored with its schema, as Iceberg encodes a manifest's description.

Source: the Avro specification, binary encoding. Schema and record are untrusted: their depth and the cost of
decoding them are limited by their size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lake.core.table.flink.byte_reader import ByteReader

_MAX_DEPTH = 32
_MAX_VARIABLE_BITS = 70
_MAX_LONG = (1 << 64) - 1
# The decoding steps that are always allowed; every byte of schema and record allows one more.
_FREE_STEPS = 1000


def read_by_field_id(schema_json: str, source: ByteReader) -> dict[int, Any]:
    """Decode a record and return its fields' values by Iceberg's field id, because names differ between releases.

    Args:
        schema_json: the record's Avro schema.
        source: the record; it must be read to the last byte.

    Raises:
        CorruptFileError: the schema is not a record's, or the bytes do not match it.
    """
    try:
        schema = _parse(schema_json)
    except (ValueError, RecursionError) as error:
        raise source.corrupt("the schema is not JSON") from error
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list) or schema.get("type") != "record":
        raise source.corrupt("the schema is not a record's")
    decoder = _Decoder(source, _FREE_STEPS + len(schema_json) + source.remaining)
    decoder.define(schema)
    found: dict[int, Any] = {}
    for entry, value in decoder.fields(fields, 0):
        field_id = entry.get("field-id")
        if not isinstance(field_id, int) or field_id in found:
            raise source.corrupt(f"a field has the id {str(field_id)[:40]}")
        found[field_id] = value
    source.expect_end()
    return found


@lru_cache(maxsize=16)
def _parse(schema_json: str) -> Any:
    return json.loads(schema_json)


@dataclass(slots=True)
class _Decoder:
    """Decodes values by a schema, within a limited number of steps."""

    source: ByteReader
    steps: int
    named: dict[str, Any] = field(default_factory=dict)

    def define(self, schema: dict[str, Any]) -> None:
        """Register a named type, which other types may refer to."""
        name, namespace = schema.get("name"), schema.get("namespace")
        if isinstance(name, str):
            self.named[name] = self.named[name.rpartition(".")[2]] = schema
            if isinstance(namespace, str):
                self.named[f"{namespace}.{name}"] = schema

    def fields(self, fields: list[Any], depth: int) -> list[tuple[dict[str, Any], Any]]:
        """Return a record's fields with their values."""
        found = []
        for entry in fields:
            if not isinstance(entry, dict) or "type" not in entry:
                raise self.source.corrupt("a field has no type")
            found.append((entry, self.value(entry["type"], depth + 1)))
        return found

    def value(self, kind: Any, depth: int) -> Any:
        """Decode one value."""
        self.steps -= 1
        if depth > _MAX_DEPTH or self.steps < 0:
            raise self.source.corrupt("the schema is too deep or too large")
        if isinstance(kind, list):
            return self.value(kind[self._index(len(kind))], depth + 1)
        if isinstance(kind, dict):
            return self._complex(kind, depth)
        return self._simple(kind, depth)

    def _complex(self, kind: dict[str, Any], depth: int) -> Any:
        name = kind.get("type")
        self.define(kind)
        match name:
            case "record" if isinstance(kind.get("fields"), list):
                return [value for _, value in self.fields(kind["fields"], depth)]
            case "array":
                return self._items(lambda: self.value(kind.get("items"), depth + 1))
            case "map":
                return self._items(
                    lambda: (self._bytes(), self.value(kind.get("values"), depth + 1))
                )
            case "fixed" if isinstance(kind.get("size"), int):
                return bytes(self.source.take(kind["size"]))
            case "enum" if isinstance(kind.get("symbols"), list):
                return kind["symbols"][self._index(len(kind["symbols"]))]
            case _:
                return self.value(name, depth + 1)

    def _simple(self, kind: Any, depth: int) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return self.source.boolean()
            case "int" | "long":
                return self._long()
            case "float":
                return bytes(self.source.take(4))
            case "double":
                return bytes(self.source.take(8))
            case "bytes":
                return self._bytes()
            case "string":
                return self._text()
        if not isinstance(kind, str) or kind not in self.named:
            raise self.source.corrupt(f"unknown type {str(kind)[:40]!r}")
        return self.value(self.named[kind], depth + 1)

    def _items(self, item: Any) -> list[Any]:
        found: list[Any] = []
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            if count > self.source.remaining:
                raise self.source.corrupt(
                    f"{count} items declared, but {self.source.remaining} bytes left"
                )
            found.extend(item() for _ in range(count))
        return found

    def _bytes(self) -> bytes:
        return bytes(self.source.take(self._long()))

    def _text(self) -> str:
        try:
            return self._bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.source.corrupt("a text is not UTF-8") from error

    def _index(self, size: int) -> int:
        index = self._long()
        if not 0 <= index < size:
            raise self.source.corrupt(f"branch {index} of a union of {size}")
        return index

    def _long(self) -> int:
        value = 0
        for shift in range(0, _MAX_VARIABLE_BITS, 7):
            byte = self.source.int8() & 0xFF
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value <= _MAX_LONG:  # noqa: PLR2004 - the last byte has no high bit
                return value >> 1 ^ -(value & 1)
        raise self.source.corrupt("a number has more than ten bytes")
