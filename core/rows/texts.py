"""Values that text formats write as text: dates with zones, decimals, UUIDs, binaries.

Accepted are ISO 8601 times, decimal numbers, UUIDs with or without hyphens, and base64 for binaries: what
`lake.core.rows.sinks` writes.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lake.core.errors import BadInputError
from lake.core.rows.schema import arrow_type

_ZONELESS = (TimestampType, TimestampNanoType)
_ZONED = (TimestamptzType, TimestamptzNanoType)


def parses(kind: IcebergType) -> bool:
    """Whether text of this type is parsed here rather than by Arrow's readers."""
    special = (DecimalType, UUIDType, BinaryType, FixedType, TimeType, *_ZONELESS, *_ZONED)
    return isinstance(kind, special)


def text_to(column: pa.Array, kind: IcebergType, name: str, where: str) -> pa.Array:
    """Return a column of texts as a type's values.

    Raises:
        BadInputError: a text is no value of the type; the message names the first.
    """
    target = arrow_type(kind)
    text = column.cast(pa.string())
    if isinstance(kind, _ZONELESS):
        try:
            return text.cast(target)
        except pa.ArrowInvalid as error:
            raise _refused(text, name, where, kind, _zoneless) from error
    encoded = pc.dictionary_encode(text)
    parse = _parser(kind)
    values = []
    for value in encoded.dictionary.to_pylist():
        try:
            values.append(parse(value))
        except (ValueError, InvalidOperation, binascii.Error) as error:
            raise _problem(value, name, where, kind) from error
    try:
        return pa.array(values, target).take(encoded.indices)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadInputError(f"column {name} of {where} has a value that {kind} cannot hold: {error}") from error


def _parser(kind: IcebergType) -> Callable[[str], Any]:
    if isinstance(kind, DecimalType):
        return lambda value: _decimal(value, kind)
    if isinstance(kind, UUIDType):
        return lambda value: uuid.UUID(value).bytes
    if isinstance(kind, TimeType):
        return time.fromisoformat
    if isinstance(kind, _ZONED):
        return _zoned
    return lambda value: base64.b64decode(value, validate=True)


def _decimal(value: str, kind: DecimalType) -> Decimal:
    number = Decimal(value.strip())
    if not number.is_finite() or number != number.quantize(Decimal(1).scaleb(-kind.scale)):
        raise ValueError(value)
    return number


def _zoned(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    # Without a zone UTC is meant, as everywhere in lake.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _zoneless(value: str) -> datetime:
    return datetime.fromisoformat(value)


def _refused(
    text: pa.Array, name: str, where: str, kind: IcebergType, parse: Callable[[str], Any]
) -> BadInputError:
    for value in text.unique().to_pylist():
        if value is not None:
            try:
                parse(value)
            except ValueError:
                return _problem(value, name, where, kind)
    return BadInputError(f"column {name} of {where} holds a text that is no {kind}")


def _problem(value: str, name: str, where: str, kind: IcebergType) -> BadInputError:
    return BadInputError(f"column {name} of {where} holds {value[:60]!r}, which is no {kind}")
