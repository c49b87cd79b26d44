"""Parse the parts of an ORC file's tail that PyArrow does not expose: stripes and ranges of times.

Format: https://orc.apache.org/specification/ORCv1/#file-tail; protocol buffers' wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake.core.base.errors import CorruptFileError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
# Field numbers of the tail, its footer, a stripe, a type, and statistics.
_FOOTER = 2
_STRIPES, _TYPES, _STATISTICS = 3, 4, 7
_OFFSET, _INDEX_BYTES, _DATA_BYTES, _STRIPE_FOOTER_BYTES, _ROWS = 1, 2, 3, 4, 5
_KIND = 1
_VALUES, _TEXTS, _BINARIES, _TIMES = 1, 4, 8, 9
_TEXT_SUM, _BINARY_SUM = 3, 1
_TIMES_LOW, _TIMES_HIGH, _TIMES_LOW_UTC, _TIMES_HIGH_UTC = 1, 2, 3, 4
_TIMESTAMP, _INSTANT = 9, 18


@dataclass(frozen=True, slots=True)
class Stripe:
    """The offset, the size in bytes and the number of rows of a stripe."""

    offset: int
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Times:
    """The minimum and maximum of a column of times, in ms since 1970; None if not stored."""

    values: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class OrcTail:
    """The parsed tail.

    Args:
        stripes: the stripes in order.
        times: the range of each timestamp column, including nested ones; None without statistics.
        text_bytes: the total bytes of the texts or binaries of each column, by ORC column number; 0 if not
            stored.
    """

    stripes: Sequence[Stripe]
    times: Sequence[Times | None]
    text_bytes: Sequence[int]

    @classmethod
    def of(cls, file: Any, path: str) -> OrcTail:
        """Read an open file's tail.

        Args:
            file: a `pyarrow.orc.ORCFile`.
            path: the file's location, for messages.

        Raises:
            CorruptFileError: it is not valid.
        """
        raw: bytes = file.reader.serialized_file_tail()
        try:
            return cls._parse(memoryview(raw))
        except (IndexError, TypeError, ValueError, pa.ArrowException) as error:
            raise CorruptFileError(f"{path} has a tail that cannot be read") from error

    @classmethod
    def _parse(cls, raw: memoryview) -> OrcTail:
        footer = _message(_bytes(_message(raw), _FOOTER))
        stripes = [_stripe(_message(item)) for item in footer.get(_STRIPES, ())]
        kinds = [_number(_message(item), _KIND) for item in footer.get(_TYPES, ())]
        known = [_message(item) for item in footer.get(_STATISTICS, ())]
        known += [{}] * (len(kinds) - len(known))
        times = [
            _times(item) if _TIMES in item or _VALUES in item else None
            for kind, item in zip(kinds, known, strict=False)
            if kind in (_TIMESTAMP, _INSTANT)
        ]
        return cls(stripes, times, [_text_bytes(item) for item in known])


Message = Mapping[int, list[Any]]


def _stripe(item: Message) -> Stripe:
    sizes = (_INDEX_BYTES, _DATA_BYTES, _STRIPE_FOOTER_BYTES)
    size = sum(_number(item, number) for number in sizes)
    return Stripe(_number(item, _OFFSET), size, _number(item, _ROWS))


def _times(item: Message) -> Times:
    found = _message(_bytes(item, _TIMES)) if _TIMES in item else {}
    values = _number(item, _VALUES)

    def first(*numbers: int) -> int | None:
        return next((_signed(found[number][0]) for number in numbers if number in found), None)

    return Times(values, first(_TIMES_LOW_UTC, _TIMES_LOW), first(_TIMES_HIGH_UTC, _TIMES_HIGH))


def _text_bytes(item: Message) -> int:
    texts, binaries = _message(_bytes(item, _TEXTS)), _message(_bytes(item, _BINARIES))
    found = texts.get(_TEXT_SUM, binaries.get(_BINARY_SUM, [0]))
    return max(_signed(found[0]), 0)


def _number(item: Message, number: int) -> int:
    return int(item.get(number, [0])[0])


def _bytes(item: Message, number: int) -> memoryview:
    value = item[number][0] if number in item else memoryview(b"")
    if not isinstance(value, memoryview):
        raise TypeError("a number where bytes are expected")
    return value


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _message(raw: Any) -> Message:
    """Return the fields of a message by their numbers."""
    if not isinstance(raw, memoryview):
        raise TypeError("a number where a message is expected")
    found: dict[int, list[Any]] = {}
    for number, value in _fields(raw):
        found.setdefault(number, []).append(value)
    return found


def _fields(raw: memoryview) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(raw, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[wire]
        if at + size > len(raw):
            raise IndexError("a field after the end")
        yield key >> 3, raw[at : at + size]
        at += size


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = raw[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return value, at + index + 1
    raise ValueError("an integer of more than 10 bytes")
