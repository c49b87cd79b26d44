"""Parse values that CSV and JSON files contain as text to the table's types, exactly or not at all.

Accepted are ISO 8601 dates and times (UTC if a time with zone has none), decimal numbers, UUIDs with or without
hyphens, and base64 for binaries. `TextForms` names other forms of numbers and dates. Except in text and binary
columns, where any word may be a value, an empty text and the words in `NULL_WORDS` mean NULL, and blanks around a
value are ignored.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lake.core.base.arrow import struct_field
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.data.columns.defaults import write_column
from lake.core.data.sources.text_forms import PLAIN, TextForms
from lake.core.spec.types.arrow_schema import arrow_type

NULL_WORDS = ("", "NULL", "null", "NA", "N/A")
_FLOATING = (FloatType, DoubleType)
_ZONED = (TimestamptzType, TimestamptzNanoType)
_CAST = (
    BooleanType,
    IntegerType,
    LongType,
    DecimalType,
    DateType,
    TimestampType,
    TimestampNanoType,
    *_FLOATING,
)
_NUMBERS = (IntegerType, LongType, DecimalType, *_FLOATING)
_DATED = (DateType, TimestampType, TimestampNanoType, *_ZONED)
_REJECTS_HINT = f"{Option.REJECTS} PATH writes such rows to a file and loads the others"
_DATE_HINT = f"{Option.DATE_FORMATS} says how dates and times are written, for example %d.%m.%Y or %m/%d/%Y %H:%M"
_ZONE = r"[T ]\d{2}.*([Zz]|[+-]\d{2}(:?\d{2})?)$"
_FIRST_SECOND = r"^(1677-09-2[0-2][T ]\d{2}:\d{2}:)43"
_ANY_INFINITY = r"(?i)inf"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ValueContext:
    """The origin of a column's values, for errors.

    Args:
        column: the name of the column.
        where: the name of the file.
        numbers: the number of each row in the file, from 1; None if not known.
        unit: what `numbers` count, ``row`` or ``line``.
        forms: how the values are written.
    """

    column: str
    where: str
    numbers: Sequence[int] | None = None
    unit: str = "row"
    forms: TextForms = PLAIN

    def inside(self, name: str, *, counted: bool = False) -> ValueContext:
        """Return the context of a nested field; `counted` if it has one value per row."""
        numbers = self.numbers if counted else None
        return replace(self, column=f"{self.column}.{name}", numbers=numbers)

    def problem(self, index: int | None, value: object, kind: IcebergType) -> BadInputError:
        """Return the error for one value, by its position in the column."""
        known = index is not None and self.numbers is not None
        row = f", {self.unit} {self.numbers[index]}" if known else ""  # type: ignore[index]
        text = str(value)
        shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
        return BadInputError(
            f"column {self.column} of {self.where}{row}: {shown} is not a valid {kind}",
            hint=f"{_DATE_HINT}; {_REJECTS_HINT}" if isinstance(kind, _DATED) else _REJECTS_HINT,
        )


def from_text(column: pa.Array, kind: IcebergType, context: ValueContext) -> pa.Array:
    """Convert a column in which some values are text to a type.

    Values of the type remain; nested columns are parsed leaf by leaf. A field that a struct does not have gets its
    write default, or NULL.

    Raises:
        BadInputError: a text is not a value of the type; the message contains the first one.
    """
    target = arrow_type(kind)
    if column.type == target:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target)
    if isinstance(kind, StructType):
        return _struct(column, kind, context)
    if isinstance(kind, ListType):
        values = from_text(column.values, kind.element_type, context.inside("element"))
        return pa.ListArray.from_arrays(column.offsets, values, type=target, mask=_nulls(column))
    if isinstance(kind, MapType):
        keys = from_text(column.keys, kind.key_type, context.inside("key"))
        items = from_text(column.items, kind.value_type, context.inside("value"))
        return pa.MapArray.from_arrays(
            column.offsets, keys, items, type=target, mask=_nulls(column)
        )
    if pa.types.is_string(column.type):
        return _parsed(column, kind, context)
    return _narrowed(column, kind, context)


def _struct(column: pa.Array, kind: StructType, context: ValueContext) -> pa.Array:
    # A NULL struct has no fields, whatever its children contain there.
    parts = [
        from_text(
            struct_field(column, item.name),
            item.field_type,
            context.inside(item.name, counted=True),
        )
        if column.type.get_field_index(item.name) >= 0
        else write_column(item, len(column))
        for item in kind.fields
    ]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind)), mask=_nulls(column))


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _narrowed(column: pa.Array, kind: IcebergType, context: ValueContext) -> pa.Array:
    """Convert numbers to a smaller type; a value out of range is refused."""
    values = column.cast(arrow_type(kind))
    if isinstance(kind, _FLOATING):
        lost = pc.and_(pc.is_inf(values), pc.invert(pc.is_inf(column)))
        if pc.any(lost).as_py():
            index = pc.index(lost, pa.scalar(value=True)).as_py()
            raise context.problem(index, column[index].as_py(), kind)
    return values


# Text


def _parsed(column: pa.Array, kind: IcebergType, context: ValueContext) -> pa.Array:
    if isinstance(kind, StringType):
        return column
    parse = _parser(kind, context.forms)
    try:
        return parse(column)
    except (pa.ArrowInvalid, ValueError):
        binary = isinstance(kind, BinaryType | FixedType)
        tidy = column if binary else tidied(column, context.forms.nulls)
    try:
        return parse(tidy)
    except (pa.ArrowInvalid, ValueError) as error:
        index = first_refused(tidy, parse, pa.ArrowInvalid, ValueError)
        raise context.problem(index, column[index].as_py(), kind) from error


def tidied(column: pa.Array, nulls: Sequence[str] = ()) -> pa.Array:
    """Strip blanks around texts, and replace the words for NULL; `nulls` are more of them."""
    trimmed = pc.utf8_trim_whitespace(column)
    words = pc.is_in(trimmed, value_set=pa.array([*NULL_WORDS, *nulls]))
    return pc.if_else(words, pa.scalar(None, pa.string()), trimmed)


def first_refused(
    column: pa.Array, convert: Callable[[pa.Array], pa.Array], *errors: type[Exception]
) -> int:
    """Return the position of the first value that is converted with one of the errors, by halving."""
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            convert(column.slice(start, middle - start))
            start = middle
        except errors:
            end = middle
    return start


def _parser(kind: IcebergType, forms: TextForms) -> Callable[[pa.Array], pa.Array]:
    parse = _plain_parser(kind)
    if isinstance(kind, _NUMBERS) and forms.decimal is not None:
        return lambda column: parse(forms.plain_numbers(column))
    if isinstance(kind, _DATED) and forms.date_formats:
        return lambda column: parse(forms.iso_dates(column))
    return parse


def _plain_parser(kind: IcebergType) -> Callable[[pa.Array], pa.Array]:
    parse = _cast_parser(kind)
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        return lambda column: _nanoseconds(column, parse)
    return parse


def _nanoseconds(column: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Parse times with nanoseconds. PyArrow refuses the first second of 64 bits: it is parsed as the next one."""
    try:
        return parse(column)
    except pa.ArrowInvalid:
        first = pc.match_substring_regex(column, _FIRST_SECOND)
        if not pc.any(first).as_py():
            raise
        later = parse(pc.replace_substring_regex(column, _FIRST_SECOND, r"\144"))
        seconds = pc.if_else(first, 10**9, 0).cast(pa.duration("ns"))
        return pc.subtract_checked(later, seconds)


def _cast_parser(kind: IcebergType) -> Callable[[pa.Array], pa.Array]:
    target = arrow_type(kind)
    if isinstance(kind, _FLOATING):
        return lambda column: _floats(column, target)
    if isinstance(kind, _CAST):
        return lambda column: column.cast(target)
    if isinstance(kind, _ZONED):
        return lambda column: _zoned(column, target)
    if isinstance(kind, TimeType):
        return _times
    if isinstance(kind, UUIDType):
        return lambda column: _each(column, lambda text: uuid.UUID(text).bytes, target)
    if isinstance(kind, UnknownType):
        return _nothing
    if isinstance(kind, BinaryType | FixedType):
        return lambda column: _each(column, _from_base64, target)
    raise BadInputError(f"text cannot be read as {kind}")


def _nothing(column: pa.Array) -> pa.Array:
    if column.null_count < len(column):
        raise ValueError("not NULL")
    return pa.nulls(len(column))


def _floats(column: pa.Array, target: pa.DataType) -> pa.Array:
    values = column.cast(target)
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py():
        said = pc.match_substring_regex(column.filter(infinite), _ANY_INFINITY)
        if not pc.all(said).as_py():
            raise ValueError("too large")
    return values


def _zoned(column: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        # Times without a zone are UTC, as everywhere in lake.
        days = pc.match_substring_regex(column, r"^\d{4}-\d{2}-\d{2}$")
        column = pc.if_else(days, pc.binary_join_element_wise(column, "T00:00:00", ""), column)
        bare = pc.invert(pc.match_substring_regex(column, _ZONE))
        column = pc.if_else(bare, pc.binary_join_element_wise(column, "Z", ""), column)
        return column.cast(target)


def _times(column: pa.Array) -> pa.Array:
    moments = pc.binary_join_element_wise("1970-01-01T", column, "").cast(pa.timestamp("us"))
    return moments.cast(pa.time64("us"))


def _each(column: pa.Array, parse: Callable[[str], bytes], target: pa.DataType) -> pa.Array:
    values = [None if text is None else parse(text) for text in column.to_pylist()]
    return pa.array(values, target)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error
