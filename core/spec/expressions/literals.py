"""Filter literals: converted to a column's type without rounding, and serialised as plain data."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
)
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
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400
_UUID_BYTES = 16
_LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_LARGEST_DOUBLE = struct.unpack("<d", b"\xff\xff\xff\xff\xff\xff\xef\x7f")[0]
# More digits than any column has. Without a limit, writing out "1e999999999" would exhaust the memory.
_MAX_DIGITS = 400

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_TIMESTAMP = re.compile(
    rf"(?P<date>{_DATE.pattern})(?:[T ](?P<time>{_TIME.pattern})(?P<zone>Z|[+-]\d\d:\d\d)?)?"
)
_NANOS = 1_000_000_000


class MissingZoneError(ValueError):
    """A time without a zone is given for a column with one; `suggestion` is the time in UTC."""

    def __init__(self, suggestion: str) -> None:
        super().__init__("the time has no zone")
        self.suggestion = suggestion


class TypedTextLiteral(StringLiteral):
    """SQL's ``TYPE '…'``: the text of a value whose type does not depend on the column; see `typed_literal`."""

    type_name: ClassVar[str]

    def __eq__(self, other: object) -> bool:
        # In a set of values, a text without a type must not replace one that has a type.
        return type(other) is type(self) and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.type_name, self.value))


class DateTextLiteral(TypedTextLiteral):
    """A date; where it is compared with a timestamp, its midnight."""

    type_name = "date"


class TimeTextLiteral(TypedTextLiteral):
    """A time of day."""

    type_name = "time"


class TimestampTextLiteral(TypedTextLiteral):
    """A timestamp; with a zone, a point in time."""

    type_name = "timestamp"


class TimestamptzTextLiteral(TypedTextLiteral):
    """A point in time; a text without a zone can be compared with nothing."""

    type_name = "timestamptz"


@dataclass(frozen=True, slots=True)
class Coerced:
    """A literal converted to a type: the closest value from below, and whether it is equal.

    Args:
        literal: the greatest value of the type that is not greater than the original; None if all are greater.
        exact: whether it equals the original.
    """

    literal: Literal[Any] | None
    exact: bool = True


def typed_literal(type_name: str, text: str) -> Literal[Any]:
    """Return the value of SQL's ``TYPE 'text'``.

    Args:
        type_name: one of `TYPE_NAMES`.
        text: the text of the value.

    Raises:
        ValueError: the text is not a value of the type.
    """
    make, check = _TYPED[type_name]
    check(text)
    return make(text)


def coerce(literal: Literal[Any], type_: IcebergType) -> Coerced:
    """Convert a literal to a column's type.

    Integers given for dates and times are raw values (days; the type's unit), as in PyIceberg. Text is
    parsed.

    Raises:
        TypeError: a literal of this kind cannot be compared with the type.
        ValueError: the text is not a value of the type.
    """
    convert = _CONVERSIONS.get(type(type_))
    if convert is None:
        raise TypeError("not comparable")
    if isinstance(literal, TypedTextLiteral):
        return _coerce_typed(literal, type_, convert)
    return convert(literal, type_)


def _coerce_typed(
    literal: TypedTextLiteral, type_: IcebergType, convert: Callable[[Literal[Any], Any], Coerced]
) -> Coerced:
    text = literal.value
    if isinstance(literal, DateTextLiteral):
        return convert(DateLiteral(_days(text)), type_)
    if isinstance(literal, TimeTextLiteral):
        same = isinstance(type_, TimeType)
        return convert(StringLiteral(text) if same else TimeLiteral(0), type_)
    zoned = True if isinstance(literal, TimestamptzTextLiteral) else None
    nanos = _timestamp_nanos(text, zoned=zoned)
    if isinstance(type_, _TIMESTAMPS):
        return convert(StringLiteral(text), type_)
    if not isinstance(type_, DateType):
        return convert(TimestampLiteral(0), type_)
    if _has_zone(text):
        raise TypeError("not a date")
    days, rest = divmod(nanos, _DAY_SECONDS * _NANOS)
    return Coerced(DateLiteral(days), rest == 0)


def literal_to_plain(literal: Literal[Any]) -> list[Any]:
    """Return a literal as JSON-ready data that preserves its type and value exactly."""
    kind = literal_kind(literal)
    return [kind, _KINDS[kind][1](literal.value)]


def literal_from_plain(plain: Any) -> Literal[Any]:
    """Rebuild a literal.

    Raises:
        KeyError, TypeError, ValueError, ArithmeticError: the data is not a literal.
    """
    kind, value = plain
    make, _, decode = _KINDS[kind]
    literal: Literal[Any] = make(decode(value))
    return literal


def literal_kind(literal: Literal[Any]) -> str:
    """Return the name of a literal's type for messages and for plain data."""
    return type(literal).__name__.removesuffix("Literal").lower()


def _number(literal: Literal[Any]) -> Decimal | float:
    """Return a literal's number; only infinities and NaN are returned as a float."""
    value = literal.value
    if isinstance(literal, StringLiteral):
        try:
            value = Decimal(value.strip())
        except InvalidOperation:
            raise ValueError("not a number") from None
    elif not isinstance(literal, LongLiteral | DecimalLiteral | FloatLiteral | DoubleLiteral):
        raise TypeError("not a number")
    if isinstance(value, float):
        # repr gives the number as typed: 0.1 means one tenth
        return Decimal(repr(value)) if math.isfinite(value) else value
    number = Decimal(value)
    if number.is_nan():
        raise ValueError("NaN equals nothing; use 'is nan'")
    return number if number.is_finite() else float(number)


def _unscaled(number: Decimal, scale: int) -> tuple[int, bool]:
    """Return floor(number * 10**scale) and whether it is exact."""
    sign, digits, _ = number.as_tuple()
    exponent = int(number.as_tuple().exponent) + scale
    unsigned = int("".join(map(str, digits)))
    if unsigned == 0:
        return 0, True
    if exponent >= 0:
        return (-1 if sign else 1) * unsigned * 10**exponent, True
    whole, rest = divmod(-unsigned if sign else unsigned, 10**-exponent)
    return whole, rest == 0


def _coerce_integer(
    number: Decimal | float, smallest: int, largest: int, make: Callable[[int], Any], scale: int = 0
) -> Coerced:
    if isinstance(number, float) or (number and number.adjusted() + scale > _MAX_DIGITS):
        return Coerced(make(largest) if number > 0 else None, exact=False)
    if number and number.adjusted() + scale < -_MAX_DIGITS:
        return Coerced(make(0 if number > 0 else -1), exact=False)
    unscaled, exact = _unscaled(number, scale)
    if unscaled > largest:
        return Coerced(make(largest), exact=False)
    if unscaled < smallest:
        return Coerced(None, exact=False)
    return Coerced(make(unscaled), exact)


def _to_integer(literal: Literal[Any], type_: Any) -> Coerced:
    if isinstance(literal, LongLiteral) and type_.min <= literal.value <= type_.max:
        return Coerced(literal)
    return _coerce_integer(_number(literal), type_.min, type_.max, LongLiteral)


def _to_decimal(literal: Literal[Any], type_: Any) -> Coerced:
    largest = 10**type_.precision - 1

    def make(unscaled: int) -> Literal[Any]:
        return DecimalLiteral(unscaled_to_decimal(unscaled, type_.scale))

    return _coerce_integer(_number(literal), -largest, largest, make, type_.scale)


def _coerce_float(
    number: Decimal | float, width: str, largest: float, make: Callable[[float], Any]
) -> Coerced:
    value = float(number)
    if isinstance(number, Decimal) and _overflows(value, width):
        return Coerced(make(largest if number > 0 else -math.inf), exact=False)
    return Coerced(make(value))


def _overflows(value: float, width: str) -> bool:
    try:
        struct.pack(width, value)
    except OverflowError:
        return True
    return math.isinf(value)


def _to_float(literal: Literal[Any], _: IcebergType) -> Coerced:
    return _coerce_float(_number(literal), "<f", _LARGEST_FLOAT, FloatLiteral)


def _to_double(literal: Literal[Any], _: IcebergType) -> Coerced:
    return _coerce_float(_number(literal), "<d", _LARGEST_DOUBLE, DoubleLiteral)


def _to_boolean(literal: Literal[Any], _: IcebergType) -> Coerced:
    if isinstance(literal, BooleanLiteral):
        return Coerced(literal)
    if isinstance(literal, StringLiteral):
        if literal.value.lower() not in {"true", "false"}:
            raise ValueError("not true or false")
        return Coerced(BooleanLiteral(literal.value.lower() == "true"))
    raise TypeError("not a boolean")


def _to_string(literal: Literal[Any], _: IcebergType) -> Coerced:
    if not isinstance(literal, StringLiteral):
        raise TypeError("not text")
    literal.value.encode()
    return Coerced(literal)


def _to_uuid(literal: Literal[Any], _: IcebergType) -> Coerced:
    if isinstance(literal, StringLiteral):
        return Coerced(UUIDLiteral(UUID(literal.value).bytes))
    return Coerced(UUIDLiteral(_binary(literal, _UUID_BYTES)))


def _to_fixed(literal: Literal[Any], type_: Any) -> Coerced:
    return Coerced(FixedLiteral(_binary(literal, len(type_))))


def _to_binary(literal: Literal[Any], _: IcebergType) -> Coerced:
    return Coerced(BinaryLiteral(_binary(literal, None)))


def _binary(literal: Literal[Any], length: int | None) -> bytes:
    if not isinstance(literal, BinaryLiteral | FixedLiteral | UUIDLiteral):
        raise TypeError("not bytes")
    if length is not None and len(literal.value) != length:
        raise ValueError(f"{len(literal.value)} bytes long")
    return bytes(literal.value)


def _to_date(literal: Literal[Any], _: IcebergType) -> Coerced:
    if isinstance(literal, DateLiteral):
        return Coerced(literal)
    if isinstance(literal, TimestampLiteral):
        days, rest = divmod(literal.value, _DAY_SECONDS * 1_000_000)
        return Coerced(DateLiteral(days), rest == 0)
    if isinstance(literal, StringLiteral):
        return Coerced(DateLiteral(_days(literal.value)))
    if isinstance(literal, LongLiteral):
        return _coerce_integer(
            Decimal(literal.value), IntegerType.min, IntegerType.max, DateLiteral
        )
    raise TypeError("not a date")


def _to_time(literal: Literal[Any], _: IcebergType) -> Coerced:
    if isinstance(literal, TimeLiteral):
        return Coerced(literal)
    if isinstance(literal, StringLiteral):
        micros, rest = divmod(_time_nanos(literal.value), 1000)
        return Coerced(TimeLiteral(micros), rest == 0)
    if isinstance(literal, LongLiteral):
        return _coerce_integer(Decimal(literal.value), LongType.min, LongType.max, TimeLiteral)
    raise TypeError("not a time")


def _to_timestamp(literal: Literal[Any], type_: IcebergType) -> Coerced:
    zoned = isinstance(type_, TimestamptzType | TimestamptzNanoType)
    unit = 1 if isinstance(type_, TimestampNanoType | TimestamptzNanoType) else 1000
    make = LongLiteral if unit == 1 else TimestampLiteral
    if isinstance(literal, LongLiteral):
        raw = Decimal(literal.value)
    elif isinstance(literal, TimestampLiteral):
        raw = Decimal(literal.value * 1000 // unit)
    elif isinstance(literal, DateLiteral) and zoned:
        day = date.fromordinal(literal.value + _EPOCH_ORDINAL)
        raise MissingZoneError(f"{day.isoformat()}T00:00:00Z")
    elif isinstance(literal, DateLiteral):
        raw = Decimal(literal.value * _DAY_SECONDS * _NANOS // unit)
    elif isinstance(literal, StringLiteral):
        raw = Decimal(_timestamp_nanos(literal.value, zoned=zoned)).scaleb(-3 if unit > 1 else 0)
    else:
        raise TypeError("not a timestamp")
    return _coerce_integer(raw, LongType.min, LongType.max, make)


def _days(text: str) -> int:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("write dates as 2024-12-31")
    year, month, day = map(int, found.groups())
    return date(year, month, day).toordinal() - _EPOCH_ORDINAL


def _time_nanos(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("write times as 23:59:59.999999")
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004 - the clock's own numbers
        raise ValueError("no such time of day")
    fraction = int((found[4] or "").ljust(9, "0"))
    return ((hour * 60 + minute) * 60 + second) * _NANOS + fraction


def _timestamp_nanos(text: str, *, zoned: bool | None = None) -> int:
    """Return the nanoseconds since 1970 of a text that has a zone or none; `zoned` requires one of the two."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("write timestamps as 2024-12-31T23:59:59")
    zone = found["zone"]
    if zoned and zone is None:
        time = found["time"] or "00:00:00"
        raise MissingZoneError(f"{found['date']}T{time}Z")
    if zoned is False and zone is not None:
        raise ValueError("the column has no time zone: leave it out")
    nanos = _days(found["date"]) * _DAY_SECONDS * _NANOS
    return nanos + _time_nanos(found["time"] or "00:00") - _zone_nanos(zone)


def _zone_nanos(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return (-1 if zone[0] == "-" else 1) * minutes * 60 * _NANOS


def _has_zone(text: str) -> bool:
    found = _TIMESTAMP.fullmatch(text)
    return found is not None and found["zone"] is not None


_TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
# The types that may precede a text, and what checks the text.
_TYPED: Mapping[str, tuple[type[TypedTextLiteral], Callable[[str], Any]]] = {
    "date": (DateTextLiteral, _days),
    "time": (TimeTextLiteral, _time_nanos),
    "timestamp": (TimestampTextLiteral, _timestamp_nanos),
    "timestamp_ntz": (TimestampTextLiteral, partial(_timestamp_nanos, zoned=False)),
    "timestamptz": (TimestamptzTextLiteral, _timestamp_nanos),
    "timestamp_ltz": (TimestamptzTextLiteral, _timestamp_nanos),
}

# Iceberg's names, and Spark's of timestamps without and with a zone.
TYPE_NAMES = frozenset(_TYPED)

_CONVERSIONS: Mapping[type[IcebergType], Callable[[Literal[Any], Any], Coerced]] = {
    BooleanType: _to_boolean,
    IntegerType: _to_integer,
    LongType: _to_integer,
    FloatType: _to_float,
    DoubleType: _to_double,
    DecimalType: _to_decimal,
    DateType: _to_date,
    TimeType: _to_time,
    TimestampType: _to_timestamp,
    TimestamptzType: _to_timestamp,
    TimestampNanoType: _to_timestamp,
    TimestamptzNanoType: _to_timestamp,
    StringType: _to_string,
    UUIDType: _to_uuid,
    FixedType: _to_fixed,
    BinaryType: _to_binary,
}

# How filters write a value of each type.
EXAMPLES: Mapping[type[IcebergType], str] = {
    BooleanType: "true",
    IntegerType: "10",
    LongType: "10",
    FloatType: "10.5",
    DoubleType: "10.5",
    DecimalType: "10.5",
    DateType: "'2024-12-31'",
    TimeType: "'23:59:59'",
    TimestampType: "'2024-12-31T23:59:59'",
    TimestamptzType: "'2024-12-31T23:59:59Z'",
    TimestampNanoType: "'2024-12-31T23:59:59.123456789'",
    TimestamptzNanoType: "'2024-12-31T23:59:59.123456789Z'",
    StringType: "'text'",
    UUIDType: "'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
    FixedType: "X'00FF'",
    BinaryType: "X'00FF'",
}

# For each type of literal: how its value is serialised and deserialised.
_KINDS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "boolean": (BooleanLiteral, bool, bool),
    "long": (LongLiteral, int, int),
    "float": (FloatLiteral, float.hex, float.fromhex),
    "double": (DoubleLiteral, float.hex, float.fromhex),
    "date": (DateLiteral, int, int),
    "time": (TimeLiteral, int, int),
    "timestamp": (TimestampLiteral, int, int),
    "decimal": (DecimalLiteral, str, Decimal),
    "string": (StringLiteral, str, str),
    "datetext": (DateTextLiteral, str, str),
    "timetext": (TimeTextLiteral, str, str),
    "timestamptext": (TimestampTextLiteral, str, str),
    "timestamptztext": (TimestamptzTextLiteral, str, str),
    "uuid": (UUIDLiteral, bytes.hex, bytes.fromhex),
    "fixed": (FixedLiteral, bytes.hex, bytes.fromhex),
    "binary": (BinaryLiteral, bytes.hex, bytes.fromhex),
}
