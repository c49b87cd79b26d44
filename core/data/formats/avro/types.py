"""The rows of Avro files: the Arrow type of each column, and the conversion of what was decoded.

The decoder gets generated names and no logical types; the columns are converted to their logical types afterwards.
Format: https://avro.apache.org/docs/1.12.0/specification/; ids: https://iceberg.apache.org/spec/#avro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.types import DecimalType

from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.logical_types import LogicalType
from lake.core.data.columns.reading_errors import unsupported_file
from lake.core.io.avro.decode import Layout, flat_layout
from lake.core.io.avro.few_records import PRIMITIVES
from lake.core.io.avro.schema import AvroType, UnsupportedSchemaError, number, parse_schema
from lake.core.spec.types.arrow_schema import FIELD_ID
from lake.core.spec.types.single_values import from_avro

_MOST_DIGITS = 38
_UUID_BYTES = 16
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


class Column(Protocol):
    """The values of a type."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, with the ids of nested fields."""

    def restore(self, column: pa.Array) -> pa.Array:
        """Convert a decoded column to `arrow`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record, list or map; `kind` is None if all values are NULL."""

    name: str
    number: int | None
    kind: Column | None
    nullable: bool = False

    @property
    def arrow(self) -> pa.Field:
        """The Arrow field."""
        kind = self.kind.arrow if self.kind else pa.null()
        metadata = None if self.number is None else {FIELD_ID: str(self.number).encode()}
        return pa.field(self.name, kind, self.nullable or self.kind is None, metadata)


@dataclass(frozen=True, slots=True)
class Plain:
    """Values that are converted by a cast; `meaning` is a logical type that Arrow does not have."""

    arrow: pa.DataType
    meaning: str | None = None

    def restore(self, column: pa.Array) -> pa.Array:
        """Cast the column."""
        return column if column.type == self.arrow else column.cast(self.arrow)


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum: indices of texts."""

    symbols: pa.Array
    arrow = pa.string()

    def restore(self, column: pa.Array) -> pa.Array:
        """Replace the indices by the texts."""
        return self.symbols.take(column)


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal: a big-endian number in bytes or in a fixed type."""

    precision: int
    scale: int

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a decimal."""
        return pa.decimal128(self.precision, self.scale)

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

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a list."""
        return pa.list_(self.item.arrow)

    def restore(self, column: pa.Array) -> pa.Array:
        """Restore the values."""
        assert self.item.kind is not None  # noqa: S101 - the parser refuses it
        offsets, values, mask = _entries(column)
        return pa.ListArray.from_arrays(
            offsets, self.item.kind.restore(values), type=self.arrow, mask=mask
        )


@dataclass(frozen=True, slots=True)
class Map:
    """A map, which is decoded as an array of pairs."""

    pairs: Record

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type, a map."""
        return pa.map_(*(item.arrow for item in self.pairs.fields))

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


@dataclass(frozen=True, slots=True)
class RowType:
    """The type of a file's rows, as it is stored and as Arrow's columns."""

    stored: AvroType
    columns: Record

    @classmethod
    def parse(cls, schema_json: bytes, *, name: str) -> RowType:
        """Parse the schema of a file's rows.

        Args:
            schema_json: an Avro record schema; untrusted.
            name: the file's location, for messages.

        Raises:
            CorruptFileError: it is not a valid schema.
            RefusedError: the schema is not supported.
        """
        try:
            stored = parse_schema(schema_json)
            return cls(stored, _rows(stored))
        except UnsupportedSchemaError as error:
            raise unsupported_file(name, str(error)) from error
        except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
            raise CorruptFileError(
                f"{name} has no valid Avro schema: {str(error)[:200]}"
            ) from error

    @property
    def layout(self) -> Layout:
        """How the rows are decoded: the columns have their positions as names, without those of NULL only."""
        columns = ((f"f{index}", kind) for index, kind in enumerate(self.stored.parts))
        return flat_layout(columns, lambda index, _: f"f{index}")

    @property
    def fixed_bytes(self) -> int:
        """The number of bytes of a row's values of fixed size, NULL or not."""
        nodes = self.stored.nodes()
        return sum(kind.attributes["size"] for kind in nodes if kind.name == "fixed")

    @property
    def source_schema(self) -> pa.Schema:
        """The columns of a source, with `LogicalType` for logical types that Arrow does not have."""
        return pa.schema([_source_field(item) for item in self.columns.fields])


def _source_field(item: Field) -> pa.Field:
    return item.arrow if item.kind is None else item.arrow.with_type(_source_type(item.kind))


def _source_type(kind: Column) -> pa.DataType:
    if isinstance(kind, Record):
        return pa.struct([_source_field(item) for item in kind.fields])
    if isinstance(kind, List):
        return pa.list_(_source_field(kind.item))
    if isinstance(kind, Map):
        return pa.map_(*(_source_field(item) for item in kind.pairs.fields))
    meaning = kind.meaning if isinstance(kind, Plain) else None
    if meaning == _UUID:
        return pa.uuid() if kind.arrow == pa.binary(_UUID_BYTES) else kind.arrow
    return kind.arrow if meaning is None else LogicalType(kind.arrow, f"Avro's {meaning}")


# From the schema


def _rows(kind: AvroType) -> Record:
    if kind.name != "record":
        raise UnsupportedSchemaError("its rows are not records")
    return _record(kind)


def _column(kind: AvroType) -> Column | None:
    """Return the column of a type; None for null.

    Raises:
        UnsupportedSchemaError: it is not supported.
        ValueError: it is not valid.
    """
    attributes = kind.attributes
    match kind.name:
        case "null":
            return None
        case "union":
            raise UnsupportedSchemaError(_UNION)
        case "record":
            return _record(kind)
        case "array":
            return _array(kind)
        case "map":
            key = Field("key", number(attributes, "key-id"), Plain(pa.string()))
            value = _field("value", number(attributes, "value-id"), kind.parts[0])
            return Map(Record([key, value]))
        case "fixed":
            plain = Plain(pa.binary(attributes["size"]), _meaning(attributes))
            return _decimal(attributes) or plain
        case "enum":
            return Enum(pa.array(attributes["symbols"], pa.string()))
    return _primitive(kind.name, attributes)


def _record(kind: AvroType) -> Record:
    fields = []
    for attributes, part in kind.fields:
        name = attributes.get("iceberg-field-name", attributes.get("name"))
        if not isinstance(name, str):
            raise ValueError("a field without a name")  # noqa: TRY004 - JSON of a wrong form
        fields.append(_field(name, number(attributes, "field-id"), part))
    return Record(fields)


def _field(name: str, field_id: int | None, kind: AvroType) -> Field:
    null_at = kind.null_at
    if null_at is not None:
        kind = kind.parts[1 - null_at]
    elif kind.name == "union":
        raise UnsupportedSchemaError(f"the field {name}: {_UNION}")
    column = _column(kind)
    if column is not None and kind.is_empty:
        raise UnsupportedSchemaError(f"the field {name} is a record without values")
    return Field(name, field_id, column, null_at is not None)


def _array(kind: AvroType) -> Column:
    item = _field("element", number(kind.attributes, "element-id"), kind.parts[0])
    if item.kind is None:
        # A list of values without bytes may claim any length.
        raise UnsupportedSchemaError("an array of null")
    pairs = item.kind
    if kind.attributes.get("logicalType") == "map" and isinstance(pairs, Record):
        if item.nullable or [part.name for part in pairs.fields] != ["key", "value"]:
            raise ValueError("a map whose entries are not pairs of key and value")
        return Map(pairs)
    return List(item)


def _primitive(name: str, attributes: Mapping[str, Any]) -> Column:
    """Return the column of a primitive type with its logical type, if that is known."""
    logical = str(attributes.get("logicalType"))
    if name == "long" and logical in _INSTANTS:
        zone = None if attributes.get("adjust-to-utc") is False else "UTC"
        return Plain(pa.timestamp(_INSTANTS[logical], zone))
    plain = Plain(_LOGICAL.get((name, logical), PRIMITIVES[name]))
    if name != "bytes":
        return plain
    return _decimal(attributes) or Plain(plain.arrow, _meaning(attributes))


def _meaning(attributes: Mapping[str, Any]) -> str | None:
    """Return the logical type of bytes if Arrow does not have it (except UUID)."""
    logical = attributes.get("logicalType")
    precision = attributes.get("precision")
    if logical == "decimal" and isinstance(precision, int) and precision > _MOST_DIGITS:
        return f"decimal of {precision} digits"
    return logical if logical in _MEANINGS else None


def _decimal(attributes: Mapping[str, Any]) -> Decimal | None:
    """Return the decimal that attributes of bytes describe; None if they describe none that Arrow has."""
    precision, scale = attributes.get("precision"), attributes.get("scale", 0)
    is_decimal = attributes.get("logicalType") == "decimal"
    if not is_decimal or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        return None
    return Decimal(precision, scale)
