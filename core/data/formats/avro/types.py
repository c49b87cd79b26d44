"""Avro row schemas as trees of types: how to decode each, its Arrow type, and the conversion between them.

The decoder gets generated names and no logical types; the columns are converted to their logical types afterwards.
Format: https://avro.apache.org/docs/1.12.0/specification/; ids: https://iceberg.apache.org/spec/#avro.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.types import DecimalType

from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.logical_types import LogicalType
from lake.core.data.columns.reading_errors import unsupported_file
from lake.core.spec.types.arrow_schema import FIELD_ID
from lake.core.spec.types.single_values import from_avro

_MAX_NODES = 20_000
_MAX_FIXED_BYTES = 64 * 1024
_MOST_DIGITS = 38
_UUID_BYTES = 16
_PRIMITIVES: Mapping[str, tuple[pa.DataType, bytes]] = {
    "boolean": (pa.bool_(), b"\x00"),
    "int": (pa.int32(), b"\x00"),
    "long": (pa.int64(), b"\x00"),
    "float": (pa.float32(), bytes(4)),
    "double": (pa.float64(), bytes(8)),
    "bytes": (pa.binary(), b"\x00"),
    "string": (pa.string(), b"\x00"),
}
# By Avro's type and logical type; `adjust-to-utc` distinguishes times with a time zone.
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_UUID = "uuid"
_MEANINGS = frozenset({_UUID, "duration", "big-decimal"})
_INSTANTS = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}


_UNION = "a union that is not of null and one other type"


class _UnsupportedError(ValueError):
    """A valid Avro schema that is not supported."""


class AvroType(Protocol):
    """A type."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, with the ids of nested fields."""

    @property
    def blank(self) -> bytes:
        """The shortest encoded value: zero or empty."""

    def plain(self, names: Iterator[int]) -> Any:
        """Return the schema for the decoder, JSON-ready, with numbers as names."""

    def restore(self, column: pa.Array) -> pa.Array:
        """Convert a decoded column to `arrow`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record, list or map; `kind` is None if all values are NULL."""

    name: str
    number: int | None
    kind: AvroType | None
    null_at: int | None = None

    @property
    def arrow(self) -> pa.Field:
        """The Arrow field."""
        kind = self.kind.arrow if self.kind else pa.null()
        nullable = self.null_at is not None or self.kind is None
        metadata = None if self.number is None else {FIELD_ID: str(self.number).encode()}
        return pa.field(self.name, kind, nullable, metadata)

    @property
    def blank(self) -> bytes:
        """The shortest value."""
        if self.kind is None:
            return b""
        if self.null_at is not None:
            return b"\x02" if self.null_at else b"\x00"
        return self.kind.blank

    def plain(self, names: Iterator[int]) -> Any:
        """Return the type for the decoder."""
        assert self.kind is not None  # noqa: S101 - fields without bytes were omitted before
        plain = self.kind.plain(names)
        if self.null_at is None:
            return plain
        return [plain, "null"] if self.null_at else ["null", plain]


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type, which is converted by a cast."""

    name: str
    arrow: pa.DataType
    meaning: str | None = None

    @property
    def blank(self) -> bytes:
        """The shortest value."""
        return _PRIMITIVES[self.name][1]

    def plain(self, _names: Iterator[int]) -> Any:
        """Return the type's name."""
        return self.name

    def restore(self, column: pa.Array) -> pa.Array:
        """Cast the column."""
        if pa.types.is_null(self.arrow):
            return pa.nulls(len(column))
        return column if column.type == self.arrow else column.cast(self.arrow)


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum: indices of texts."""

    symbols: pa.Array
    blank = b"\x00"
    arrow = pa.string()

    def plain(self, _names: Iterator[int]) -> Any:
        """Return the type of the indices."""
        return "int"

    def restore(self, column: pa.Array) -> pa.Array:
        """Replace the indices by the texts."""
        return self.symbols.take(column)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes."""

    size: int
    meaning: str | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, fixed-size binary."""
        return pa.binary(self.size)

    @property
    def blank(self) -> bytes:
        """The shortest value."""
        return bytes(self.size)

    def plain(self, names: Iterator[int]) -> Any:
        """Return the type with a new name."""
        return {"type": "fixed", "name": f"t{next(names)}", "size": self.size}

    def restore(self, column: pa.Array) -> pa.Array:
        """Return the column unchanged."""
        return column


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal: a big-endian number in bytes or in a fixed type."""

    base: AvroType
    precision: int
    scale: int

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a decimal."""
        return pa.decimal128(self.precision, self.scale)

    @property
    def blank(self) -> bytes:
        """The shortest value."""
        return self.base.blank

    def plain(self, names: Iterator[int]) -> Any:
        """Return the type of the bytes."""
        return self.base.plain(names)

    def restore(self, column: pa.Array) -> pa.Array:
        """Decode the numbers."""
        return from_avro(column, DecimalType(self.precision, self.scale))


@dataclass(frozen=True, slots=True)
class Record:
    """A record of named fields."""

    fields: Sequence[Field]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a struct."""
        return pa.struct([item.arrow for item in self.fields])

    @property
    def blank(self) -> bytes:
        """The shortest value."""
        return b"".join(item.blank for item in self.fields)

    def plain(self, names: Iterator[int]) -> Any:
        """Return the record with new names, without fields that have no bytes."""
        fields = [
            {"name": f"f{index}", "type": item.plain(names)}
            for index, item in enumerate(self.fields)
            if item.kind is not None
        ]
        return {"type": "record", "name": f"t{next(names)}", "fields": fields}

    def restore(self, column: pa.Array) -> pa.Array:
        """Restore the fields."""
        parts = [
            pa.nulls(len(column))
            if item.kind is None
            else item.kind.restore(column.field(column.type.get_field_index(f"f{index}")))
            for index, item in enumerate(self.fields)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(self.arrow), mask=mask)


@dataclass(frozen=True, slots=True)
class List:
    """An array of values of one type."""

    item: Field
    blank = b"\x00"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a list."""
        return pa.list_(self.item.arrow)

    def plain(self, names: Iterator[int]) -> Any:
        """Return the type as an array."""
        return {"type": "array", "items": self.item.plain(names)}

    def restore(self, column: pa.Array) -> pa.Array:
        """Restore the values."""
        assert self.item.kind is not None  # noqa: S101 - the parser refuses it
        offsets, values, mask = _entries(column)
        return pa.ListArray.from_arrays(
            offsets, self.item.kind.restore(values), type=self.arrow, mask=mask
        )


@dataclass(frozen=True, slots=True)
class Map:
    """A map. An Avro map has the same bytes as an array of pairs."""

    pairs: Record
    blank = b"\x00"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a map."""
        return pa.map_(*(item.arrow for item in self.pairs.fields))

    def plain(self, names: Iterator[int]) -> Any:
        """Return the type as an array of pairs."""
        return {"type": "array", "items": self.pairs.plain(names)}

    def restore(self, column: pa.Array) -> pa.Array:
        """Restore keys and values."""
        offsets, values, mask = _entries(column)
        pairs = self.pairs.restore(values)
        keys = pairs.field(0)
        if keys.null_count:
            raise pa.ArrowInvalid("a map has a NULL key")
        return pa.MapArray.from_arrays(offsets, keys, pairs.field(1), type=self.arrow, mask=mask)


def _entries(column: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """Return the offsets, the values and the NULL mask of a list column."""
    if column.offset:
        column = pa.concat_arrays([column, column.slice(0, 0)])
    mask = column.is_null() if column.null_count else None
    return column.offsets.cast(pa.int32()), column.values, mask


def row_type(schema_json: bytes, *, name: str) -> Record:
    """Parse the schema of a file's rows.

    Args:
        schema_json: an Avro record schema; untrusted.
        name: the file's location, for messages.

    Raises:
        CorruptFileError: it is not a valid schema.
        RefusedError: the schema is not supported.
    """
    try:
        return _record_of(json.loads(schema_json))
    except _UnsupportedError as error:
        raise unsupported_file(name, str(error)) from error
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise CorruptFileError(f"{name} has no valid Avro schema: {str(error)[:200]}") from error


def _record_of(schema: Any) -> Record:
    found = _Parser().kind(schema)
    if not isinstance(found, Record):
        raise _UnsupportedError("its rows are not records")
    # References to records of references double the size at every level.
    if any(number >= _MAX_NODES for number, _ in enumerate(nodes(found))):
        raise ValueError("a schema too large")
    return found


def source_schema(rows: Record) -> pa.Schema:
    """Return the columns of a source, with `LogicalType` for logical types that Arrow does not have."""
    return pa.schema([_source_field(item) for item in rows.fields])


def _source_field(item: Field) -> pa.Field:
    return item.arrow if item.kind is None else item.arrow.with_type(_source_type(item.kind))


def _source_type(kind: AvroType) -> pa.DataType:
    if isinstance(kind, Record):
        return pa.struct([_source_field(item) for item in kind.fields])
    if isinstance(kind, List):
        return pa.list_(_source_field(kind.item))
    if isinstance(kind, Map):
        return pa.map_(*(_source_field(item) for item in kind.pairs.fields))
    meaning = kind.meaning if isinstance(kind, Fixed | Primitive) else None
    if meaning == _UUID:
        return pa.uuid() if kind.arrow == pa.binary(_UUID_BYTES) else kind.arrow
    return kind.arrow if meaning is None else LogicalType(kind.arrow, f"Avro's {meaning}")


def nodes(kind: AvroType | None) -> Iterator[AvroType]:
    """Yield a type and all its nested types."""
    if kind is None:
        return
    yield kind
    if isinstance(kind, Record):
        for item in kind.fields:
            yield from nodes(item.kind)
    elif isinstance(kind, List):
        yield from nodes(kind.item.kind)
    elif isinstance(kind, Map):
        yield from nodes(kind.pairs)


@dataclass(slots=True)
class _Parser:
    """Parses a schema and resolves names; `open` contains the names of the enclosing records."""

    named: dict[str, AvroType] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    count: int = 0

    def kind(self, schema: Any) -> AvroType | None:
        """Parse a type; return None for null.

        Raises:
            ValueError: the type is not known.
        """
        self.count += 1
        if self.count > _MAX_NODES:
            raise ValueError("a schema too large")
        if schema == "null":
            return None
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Primitive(schema, _PRIMITIVES[schema][0])
            if schema in self.named:
                return self.named[schema]
            if schema in self.open:
                raise _UnsupportedError(f"the record {schema} contains itself")
            raise ValueError(f"unknown type {schema[:40]!r}")
        if not isinstance(schema, dict):
            if isinstance(schema, list):
                raise _UnsupportedError(_UNION)
            raise TypeError("a schema that is not a name or an object")
        name = schema.get("type")
        if isinstance(name, dict | list):
            return self.kind(name)
        return self._complex(str(name), schema)

    def _complex(self, name: str, schema: dict[str, Any]) -> AvroType | None:
        if name in ("record", "error"):
            around, self.open = self.open, [*self.open, *_names(schema)]
            found = self._record(schema)
            self.open = around
            return self._named(schema, found)
        if name == "fixed":
            return self._named(schema, self._fixed(schema))
        if name == "enum":
            symbols = schema.get("symbols")
            return self._named(schema, Enum(pa.array(symbols, pa.string())))
        if name == "array":
            return self._array(schema)
        if name == "map":
            key = Field("key", _number(schema, "key-id"), Primitive("string", pa.string()))
            value = self._field("value", _number(schema, "value-id"), schema.get("values"))
            return Map(Record([key, value]))
        if name in _PRIMITIVES:
            return _with_meaning(name, schema)
        return self.kind(name)

    def _named(self, schema: dict[str, Any], kind: AvroType) -> AvroType:
        self.named.update(dict.fromkeys(_names(schema), kind))
        return kind

    def _record(self, schema: dict[str, Any]) -> Record:
        entries = schema.get("fields")
        if not isinstance(entries, list) or not all(isinstance(item, dict) for item in entries):
            raise ValueError("a record without fields")
        fields = []
        for entry in entries:
            name = entry.get("iceberg-field-name", entry.get("name"))
            if not isinstance(name, str) or "type" not in entry:
                raise ValueError("a field without a name or a type")
            fields.append(self._field(name, _number(entry, "field-id"), entry["type"]))
        return Record(fields)

    def _field(self, name: str, number: int | None, schema: Any) -> Field:
        while isinstance(schema, dict) and isinstance(schema.get("type"), list):
            schema = schema["type"]
        null_at = None
        if isinstance(schema, list):
            if len(schema) != 2 or schema.count("null") != 1:  # noqa: PLR2004 - null and another
                raise _UnsupportedError(f"the field {name}: {_UNION}")
            null_at = schema.index("null")
            schema = schema[1 - null_at]
        kind = self.kind(schema)
        if isinstance(kind, Record) and all(item.kind is None for item in kind.fields):
            raise _UnsupportedError(f"the field {name} is a record without values")
        return Field(name, number, kind, null_at)

    def _array(self, schema: dict[str, Any]) -> AvroType:
        item = self._field("element", _number(schema, "element-id"), schema.get("items"))
        if item.kind is None:
            # A list of values without bytes may claim any length.
            raise _UnsupportedError("an array of null")
        pairs = item.kind
        if schema.get("logicalType") == "map" and isinstance(pairs, Record):
            if [part.name for part in pairs.fields] != ["key", "value"]:
                raise ValueError("a map whose entries are not pairs of key and value")
            return Map(pairs)
        return List(item)

    def _fixed(self, schema: dict[str, Any]) -> AvroType:
        size = schema.get("size")
        if not isinstance(size, int) or not 0 < size <= _MAX_FIXED_BYTES:
            raise ValueError(f"a fixed type of {str(size)[:40]} bytes")
        return _as_decimal(Fixed(size, _meaning(schema)), schema)


def _names(schema: dict[str, Any]) -> list[str]:
    """Return the names by which a schema refers to a type."""
    name, space = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return []
    return [name, name.rpartition(".")[2], f"{space}.{name}"]


def _with_meaning(name: str, schema: dict[str, Any]) -> AvroType:
    """Return a primitive type with its logical type, if that is known."""
    logical = str(schema.get("logicalType"))
    if name == "long" and logical in _INSTANTS:
        zone = None if schema.get("adjust-to-utc") is False else "UTC"
        return Primitive(name, pa.timestamp(_INSTANTS[logical], zone))
    plain = _LOGICAL.get((name, logical), _PRIMITIVES[name][0])
    found = Primitive(name, plain, _meaning(schema) if name == "bytes" else None)
    return _as_decimal(found, schema) if name == "bytes" else found


def _meaning(schema: dict[str, Any]) -> str | None:
    """Return the logical type of bytes if Arrow does not have it (except UUID)."""
    logical = schema.get("logicalType")
    precision = schema.get("precision")
    if logical == "decimal" and isinstance(precision, int) and precision > _MOST_DIGITS:
        return f"decimal of {precision} digits"
    return logical if logical in _MEANINGS else None


def _as_decimal(base: AvroType, schema: dict[str, Any]) -> AvroType:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    is_decimal = schema.get("logicalType") == "decimal"
    if not is_decimal or not isinstance(precision, int) or not isinstance(scale, int):
        return base
    if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        return base
    return Decimal(base, precision, scale)


def _number(schema: dict[str, Any], key: str) -> int | None:
    value = schema.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
