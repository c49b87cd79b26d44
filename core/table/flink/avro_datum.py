"""Decode one Avro record that is stored with its schema, as Iceberg encodes a manifest's description.

Source: the Avro specification, binary encoding. Schema and record are untrusted: their depth and the cost of
decoding them are limited by their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from lake.core.io.avro.schema import AvroType, number, parse_schema
from lake.core.table.flink.byte_reader import ByteReader

_MAX_DEPTH = 32
_MAX_VARIABLE_BITS = 70
_MAX_LONG = (1 << 64) - 1
# The decoding steps that are always allowed; every byte of schema and record allows one more.
_FREE_STEPS = 1000
_T = TypeVar("_T")


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
        raise source.corrupt(f"no usable Avro schema: {error}") from error
    if schema.name != "record":
        raise source.corrupt("the schema is not a record's")
    decoder = _Decoder(source, _FREE_STEPS + len(schema_json) + source.remaining)
    found: dict[int, Any] = {}
    for attributes, kind in schema.fields:
        value = decoder.value(kind, 1)
        field_id = number(attributes, "field-id")
        if field_id is None or field_id in found:
            raise source.corrupt(f"a field has the id {field_id}")
        found[field_id] = value
    source.expect_end()
    return found


_parse = lru_cache(maxsize=16)(parse_schema)


@dataclass(slots=True)
class _Decoder:
    """Decodes values by a schema, within a limited number of steps."""

    source: ByteReader
    steps: int

    def value(self, kind: AvroType, depth: int) -> Any:
        """Decode one value."""
        self.steps -= 1
        if depth > _MAX_DEPTH or self.steps < 0:
            raise self.source.corrupt("the schema is too deep or too large")
        match kind.name:
            case "union":
                return self.value(self._chosen(kind.parts), depth + 1)
            case "record":
                return [self.value(part, depth + 1) for part in kind.parts]
            case "array":
                return self._items(lambda: self.value(kind.parts[0], depth + 1))
            case "map":
                return self._items(lambda: (self._bytes(), self.value(kind.parts[0], depth + 1)))
            case "fixed":
                return bytes(self.source.take(kind.attributes["size"]))
            case "enum":
                return self._chosen(kind.attributes["symbols"])
        return self._simple(kind.name)

    def _simple(self, name: str) -> Any:
        match name:
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
        return self._text()

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

    def _chosen(self, values: Sequence[_T]) -> _T:
        index = self._long()
        if not 0 <= index < len(values):
            raise self.source.corrupt(f"branch {index} of a union of {len(values)}")
        return values[index]

    def _long(self) -> int:
        value = 0
        for shift in range(0, _MAX_VARIABLE_BITS, 7):
            byte = self.source.int8() & 0xFF
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value <= _MAX_LONG:  # noqa: PLR2004 - the last byte has no high bit
                return value >> 1 ^ -(value & 1)
        raise self.source.corrupt("a number has more than ten bytes")
