"""Read and write structs of Thrift's compact protocol as Python values, also the fields that are not known here.

Format: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
_FLAGS, _NUMBERS, _LISTS = (TRUE, FALSE), (I16, I32, I64), (LIST, SET)
_FIXED = {BYTE: 1, DOUBLE: 8, UUID: 16}
# The high four bits: 0, the field's id follows; 15, the list's size follows.
_NO_STEP, _LONG_LIST = 0, 15
_MORE, _MOST_SHIFT = 0x80, 63
_MOST_DEPTH = 32
# A footer of 10,000 column chunks has half a million. Values take 100 times as many bytes in memory as in a file.
_MOST_VALUES = 2_000_000


class ThriftError(ValueError):
    """The bytes are not a struct of the compact protocol, or one of more values than a footer has."""


class Field(NamedTuple):
    """The type of a field and its value: an int, bytes, `Items`, a `Struct`, or None for a flag."""

    kind: int
    value: Any


class Items(NamedTuple):
    """A list, a set, or a map as a list of pairs, with the type of its items or those of its keys and values."""

    kinds: tuple[int, ...]
    values: list[Any]


# The fields of a struct by their ids.
Struct: TypeAlias = Mapping[int, Field]


def read_struct(data: Any, at: int = 0) -> tuple[dict[int, Field], int]:
    """Return the struct that begins at a position, and the position after it.

    Raises:
        ThriftError: the bytes are not a struct, or not all of one.
    """
    reader = _Reader(data, at)
    try:
        return reader.struct(0), reader.at
    except IndexError as error:
        raise ThriftError("the struct does not end") from error


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct; its fields are written by their ids."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def value_of(struct: Struct, number: int, kind: int) -> Any:
    """Return the value of a field; None if the struct does not have it.

    Raises:
        ThriftError: it has another type.
    """
    found = struct.get(number)
    if found is None:
        return None
    if found.kind != kind:
        raise ThriftError(f"field {number} has the type {found.kind} instead of {kind}")
    return found.value


def structs_of(struct: Struct, number: int) -> list[dict[int, Field]]:
    """Return the structs in a list; none if the field is missing.

    Raises:
        ThriftError: it is not a list of structs.
    """
    found = value_of(struct, number, LIST)
    if found is None:
        return []
    if found.kinds != (STRUCT,) and found.values:
        raise ThriftError(f"field {number} is not a list of structs")
    return list(found.values)


def number_of(struct: Struct, number: int, kind: int = I64) -> int:
    """Return a number that a struct must have.

    Raises:
        ThriftError: it is missing, negative or of another type.
    """
    found = value_of(struct, number, kind)
    if found is None or found < 0:
        raise ThriftError(f"field {number} is {found}")
    return int(found)


class _Reader:
    """A position in bytes."""

    def __init__(self, data: Any, at: int) -> None:
        self._data = data
        self._left = _MOST_VALUES
        self.at = at

    def struct(self, depth: int) -> dict[int, Field]:
        if depth > _MOST_DEPTH:
            raise ThriftError("structs are nested too deeply")
        found: dict[int, Field] = {}
        number, data = 0, self._data
        while head := data[self.at]:
            self.at += 1
            number = number + (head >> 4) if head >> 4 != _NO_STEP else self._signed()
            kind = head & 15
            if number in found:
                raise ThriftError(f"field {number} is repeated")
            found[number] = Field(kind, None if kind in _FLAGS else self._value(kind, depth))
        self.at += 1
        return found

    def _value(self, kind: int, depth: int) -> Any:
        self._count(1)
        if kind in _NUMBERS:
            return self._signed()
        if kind == BINARY:
            return self._bytes(self._unsigned())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in _LISTS:
            return self._items(depth + 1)
        if kind == MAP:
            return self._map(depth + 1)
        if kind in _FIXED:
            return self._bytes(_FIXED[kind])
        raise ThriftError(f"{kind} is not a type")

    def _items(self, depth: int) -> Items:
        head = self._data[self.at]
        self.at += 1
        size = head >> 4 if head >> 4 != _LONG_LIST else self._unsigned()
        self._count(size)
        return Items((head & 15,), [self._item(head & 15, depth) for _ in range(size)])

    def _map(self, depth: int) -> Items:
        size = self._unsigned()
        self._count(size)
        if not size:
            return Items((), [])
        head = self._data[self.at]
        self.at += 1
        kinds = head >> 4, head & 15
        return Items(kinds, [tuple(self._item(kind, depth) for kind in kinds) for _ in range(size)])

    def _item(self, kind: int, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ThriftError("lists are nested too deeply")
        # Unlike that of a field, an element's flag is a byte.
        return self._value(BYTE if kind in _FLAGS else kind, depth)

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0 or values > len(self._data) - self.at + 1:
            raise ThriftError(f"there are more than {_MOST_VALUES:,} values, or more than bytes")

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise ThriftError(f"a value claims {size} bytes")
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._data[self.at]) >= _MORE:
            value |= (byte - _MORE) << shift
            shift += 7
            self.at += 1
            if shift > _MOST_SHIFT:
                raise ThriftError("a number has more than 64 bits")
        self.at += 1
        return int(value | byte << shift)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number in sorted(struct):
        kind, value = struct[number]
        if 0 < number - last < _LONG_LIST + 1:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_signed(out, number)
        last = number
        if kind not in _FLAGS:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _NUMBERS:
        _write_signed(out, value)
    elif kind == BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in _LISTS:
        size, (of_items,) = len(value.values), value.kinds
        out.append(min(size, _LONG_LIST) << 4 | of_items)
        if size >= _LONG_LIST:
            _write_unsigned(out, size)
        for item in value.values:
            _write_value(out, BYTE if of_items in _FLAGS else of_items, item)
    elif kind == MAP:
        _write_unsigned(out, len(value.values))
        if value.values:
            out.append(value.kinds[0] << 4 | value.kinds[1])
        for pair in value.values:
            for of_item, item in zip(value.kinds, pair, strict=True):
                _write_value(out, BYTE if of_item in _FLAGS else of_item, item)
    else:
        out += value


def _write_signed(out: bytearray, value: int) -> None:
    _write_unsigned(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_unsigned(out: bytearray, value: int) -> None:
    while value >= _MORE:
        out.append(value & (_MORE - 1) | _MORE)
        value >>= 7
    out.append(value)
