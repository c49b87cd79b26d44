"""Avro schemas as trees of types, from untrusted JSON.

Names are resolved: a type that is referred to occurs once more, as the same object. What a type means, by its
attributes, is left to the readers of its values.
Format: https://avro.apache.org/docs/1.12.0/specification/#schema-declaration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Of a tree, with a type as often as it occurs: references to records of references double the size at every level.
_MAX_NODES = 20_000
# All that walks a tree calls itself a few times a level.
_MAX_DEPTH = 200
_MAX_FIXED_BYTES = 64 * 1024


class UnsupportedSchemaError(ValueError):
    """A valid schema that is not supported, such as that of a record that contains itself."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A type.

    Args:
        name: ``record``, ``array``, ``map``, ``union``, ``fixed``, ``enum`` or the name of a primitive type.
        attributes: the entries of its JSON object, such as its logical type; those of ``fixed`` have a valid
            ``size``, those of ``enum`` a list of ``symbols``.
        parts: the types of the fields, of the items or values, or to choose from.
        size: the number of types in the tree.
        depth: the number of types from its root to its lowest leaf.

    Raises:
        ValueError: the tree is too large.
    """

    name: str
    attributes: Mapping[str, Any]
    parts: Sequence[AvroType] = ()
    size: int = field(init=False, default=1)
    depth: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        for part in self.parts:
            self.size += part.size
            self.depth = max(self.depth, 1 + part.depth)
        if self.size > _MAX_NODES or self.depth > _MAX_DEPTH:
            raise ValueError("the schema is too large")

    @property
    def fields(self) -> Iterator[tuple[Mapping[str, Any], AvroType]]:
        """The attributes and the type of each field of a record."""
        return zip(self.attributes["fields"], self.parts, strict=True)

    @property
    def null_at(self) -> int | None:
        """The position of null in a union of null and one other type; else None."""
        names = [part.name for part in self.parts] if self.name == "union" else []
        two = len(names) == 2 and names.count("null") == 1  # noqa: PLR2004 - null and another
        return names.index("null") if two else None

    @property
    def is_empty(self) -> bool:
        """Whether values are encoded in no bytes: null, and records of nothing else."""
        return self.name == "null" or (
            self.name == "record" and all(part.is_empty for part in self.parts)
        )

    def nodes(self) -> Iterator[AvroType]:
        """Yield the type and all types in it, each as often as it occurs."""
        yield self
        for part in self.parts:
            yield from part.nodes()


_PRIMITIVES = {
    name: AvroType(name, {})
    for name in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
}


def parse_schema(schema_json: str | bytes) -> AvroType:
    """Parse a schema.

    Raises:
        ValueError: it is not JSON, not a schema, or too large.
        UnsupportedSchemaError: a record contains itself.
        RecursionError: the JSON is nested too deeply.
    """
    return _Parser().type(json.loads(schema_json))


def number(attributes: Mapping[str, Any], key: str) -> int | None:
    """Return an id among attributes, such as ``field-id``; None if it is not an integer."""
    value = attributes.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(slots=True)
class _Parser:
    """Parses types; `named` contains those so far by their names, `open` the names of the enclosing records."""

    named: dict[str, AvroType] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    count: int = 0

    def type(self, schema: Any) -> AvroType:
        """Parse a type.

        Raises:
            ValueError: there is none.
        """
        self.count += 1
        if self.count > _MAX_NODES:
            raise ValueError("the schema is too large")
        while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        if isinstance(schema, list):
            branches = [self.type(branch) for branch in schema]
            if any(branch.name == "union" for branch in branches):
                raise ValueError("a union in a union")
            return AvroType("union", {}, branches)
        if not isinstance(schema, dict):
            return self._by_name(schema)
        match schema.get("type"):
            case "record" | "error":
                return self._named(schema, self._record(schema))
            case "fixed":
                return self._named(schema, _fixed(schema))
            case "enum" if isinstance(schema.get("symbols"), list):
                return self._named(schema, AvroType("enum", schema))
            case "array":
                return AvroType("array", schema, [self.type(schema.get("items"))])
            case "map":
                return AvroType("map", schema, [self.type(schema.get("values"))])
            case str(name) if name in _PRIMITIVES:
                return AvroType(name, schema)
            case name:
                return self._by_name(name)

    def _by_name(self, name: Any) -> AvroType:
        if isinstance(name, str):
            found = _PRIMITIVES.get(name) or self.named.get(name)
            if found is not None:
                return found
            if name in self.open:
                raise UnsupportedSchemaError(f"the record {name[:40]} contains itself")
        raise ValueError(f"an unknown type {str(name)[:40]!r}")

    def _named(self, schema: Mapping[str, Any], kind: AvroType) -> AvroType:
        self.named.update(dict.fromkeys(_names(schema), kind))
        return kind

    def _record(self, schema: Mapping[str, Any]) -> AvroType:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise ValueError("a record is expected")  # noqa: TRY004 - JSON of a wrong form
        around, self.open = self.open, [*self.open, *_names(schema)]
        if not all(isinstance(item, dict) and "type" in item for item in fields):
            raise ValueError("a field has no type")
        kind = AvroType("record", schema, [self.type(item["type"]) for item in fields])
        self.open = around
        return kind


def _names(schema: Mapping[str, Any]) -> list[str]:
    """Return the names by which a schema may refer to a type."""
    name, space = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return []
    return [name, name.rpartition(".")[2], *([f"{space}.{name}"] if space else [])]


def _fixed(schema: Mapping[str, Any]) -> AvroType:
    size = schema.get("size")
    if not isinstance(size, int) or not 0 < size <= _MAX_FIXED_BYTES:
        raise ValueError(f"a fixed type of {str(size)[:40]} bytes")
    return AvroType("fixed", schema)
