"""Parquet footers with wrong values in their descriptions of row groups and column chunks.

The footer is read into values and written again: a struct is a mapping from field numbers to (type, value), a list is
(type of the elements, elements). Formats: parquet.thrift and thrift-compact-protocol.md.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from hostile.parquet_edits import footer, with_footer

Struct: TypeAlias = dict[int, tuple[int, Any]]
_TRUE, _FALSE, _BYTE, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 5, 6, 7, 8, 9, 12
_BITS = {_BYTE: 7, 4: 15, _I32: 31, _I64: 63}
_LONG = 15
# Field numbers.
_GROUPS, _COLUMNS, _ROWS = 4, 1, 3
_META, _CRYPTO = 3, 8
_TYPE, _STATISTICS, _SIZES = 1, 12, 16
_MIN, _MAX = 6, 5
_NUMBERS = (0, 1, -1, 2, 7, 8, 9, 127, 128, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
# Values of new fields: among them descriptions of levels and of encrypted columns.
_STRUCTS: tuple[Struct, ...] = (
    {},
    {_TYPE: (_STRUCT, {})},
    {2: (_STRUCT, {1: (_LIST, (_BINARY, [b"a"]))})},
    {1: (_I64, 5), 2: (_LIST, (_I64, [1, 2, 3, 4, 5])), 3: (_LIST, (_I64, [1] * 9))},
)


def wrong_chunks(data: bytes, position: int) -> dict[str, bytes]:
    """Return files with a column that PyArrow cannot describe, in every row group; reading must be refused."""

    def of_chunk(change: Callable[[Struct], None]) -> bytes:
        return _changed(data, lambda group: change(group[_COLUMNS][1][1][position]))

    def of_meta(number: int, value: tuple[int, Any]) -> bytes:
        return of_chunk(lambda chunk: chunk[_META][1].update({number: value}))

    levels = (_LIST, (_I64, [1] * 9))
    return {
        "encrypted": of_chunk(lambda chunk: chunk.update({_CRYPTO: (_STRUCT, _STRUCTS[2])})),
        "repetition levels": of_meta(_SIZES, (_STRUCT, {2: levels})),
        "definition levels": of_meta(_SIZES, (_STRUCT, {3: levels})),
        "no columns": _changed(data, lambda group: group.update({_COLUMNS: (_LIST, (12, []))})),
        "a column less": _changed(data, lambda group: group[_COLUMNS][1][1].pop()),
        "a column more": _changed(data, lambda group: _again(group[_COLUMNS][1][1])),
        "negative rows": _changed(data, lambda group: group.update({_ROWS: (_I64, -(2**62))})),
        "many rows": _changed(data, lambda group: group.update({_ROWS: (_I64, 2**62)})),
    }


def wrong_statistics(data: bytes, position: int) -> dict[str, bytes]:
    """Return files with statistics of a column of 8 bytes a value that PyArrow cannot decode."""

    def of_meta(change: Callable[[Struct], None]) -> bytes:
        return _changed(data, lambda group: change(group[_COLUMNS][1][1][position][_META][1]))

    def bound(number: int, value: bytes) -> bytes:
        return of_meta(lambda meta: meta[_STATISTICS][1].update({number: (_BINARY, value)}))

    return {
        "a double": of_meta(lambda meta: meta.update({_TYPE: (_I32, 5)})),
        "an unknown type": of_meta(lambda meta: meta.update({_TYPE: (_I32, 99)})),
        "a short minimum": bound(_MIN, b"1234567"),
        "a short maximum": bound(_MAX, b"1"),
        "an empty maximum": bound(_MAX, b""),
    }


def edited(data: bytes, change: Callable[[Struct], object]) -> bytes:
    """Return a file whose footer, as values, was changed."""
    tree = _Reader(footer(data)).struct()
    change(tree)
    return with_footer(data, _struct(tree))


def mutated(data: bytes, chance: random.Random) -> bytes | None:
    """Return a file with values of its footer's row groups changed at random; None if they cannot be written."""
    tree = _Reader(footer(data)).struct()
    for _ in range(chance.choice((1, 1, 1, 2))):
        # Most values describe the schema.
        part = tree if chance.random() < 0.3 else {_GROUPS: tree.get(_GROUPS, (_LIST, (12, [])))}
        places = list(_places(_STRUCT, part))
        if places:
            _change(*chance.choice(places), chance)
    try:
        return with_footer(data, _struct(tree))
    except (TypeError, ValueError, OverflowError):
        return None


def _changed(data: bytes, change: Callable[[Struct], object]) -> bytes:
    def of_tree(tree: Struct) -> None:
        for group in tree[_GROUPS][1][1]:
            change(group)

    return edited(data, of_tree)


def _again(values: list[Any]) -> None:
    values.append(copy.deepcopy(values[-1]))


def _places(kind: int, value: Any) -> Iterator[tuple[int, Any, Any]]:
    """Yield structs and lists with the numbers of their fields and elements."""
    if kind == _STRUCT:
        for number, (inner, found) in value.items():
            yield kind, value, number
            yield from _places(inner, found)
    elif kind == _LIST:
        yield kind, value[1], None
        for index, found in enumerate(value[1]):
            if value[0] not in {_STRUCT, _LIST}:
                yield value[0], value[1], index
            yield from _places(value[0], found)


def _change(kind: int, owner: Any, at: Any, chance: random.Random) -> None:
    if kind == _LIST and at is None:
        _change_list(owner, chance)
    elif kind != _STRUCT:
        owner[at] = _other(kind, owner[at], chance)
    else:
        _change_struct(owner, at, chance)


def _change_list(values: list[Any], chance: random.Random) -> None:
    match chance.choice(("drop", "drop", "again", "clear", "shuffle", "repeat")):
        case "drop" if values:
            del values[chance.randrange(len(values))]
        case "again" if values:
            _again(values)
        case "clear":
            values.clear()
        case "shuffle":
            chance.shuffle(values)
        case "repeat":
            values.extend(copy.deepcopy(values))


def _change_struct(owner: Struct, at: int, chance: random.Random) -> None:
    new = chance.randrange(1, 18)
    match chance.choice(("value", "value", "value", "drop", "move", "add", "add")):
        case "value":
            kind, value = owner[at]
            owner[at] = kind, _other(kind, value, chance)
        case "drop":
            del owner[at]
        case "move":
            owner[new] = owner.pop(at)
        case "add":
            owner[new] = chance.choice(
                (
                    (_I32, chance.choice(_NUMBERS[:8])),
                    (_I64, chance.choice(_NUMBERS)),
                    (_BINARY, b"abc"),
                    (_LIST, (_I32, [0, 1, 77])),
                    *((_STRUCT, copy.deepcopy(found)) for found in _STRUCTS),
                )
            )


def _other(kind: int, value: Any, chance: random.Random) -> Any:
    if kind in _BITS:
        limit = 2 ** _BITS[kind]
        found = chance.choice((*_NUMBERS, value + 1, value - 1, value * 2, -value))
        return max(-limit, min(limit - 1, found))
    if kind == _BINARY:
        return chance.choice((b"", value[:-1], value + b"x", value * 3, b"\xff" * len(value)))
    return not value if kind in {_TRUE, _FALSE} else value


class _Reader:
    """Reads values."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while head := self._take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            found[number] = kind, kind == _TRUE if kind <= _FALSE else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        if kind in {_TRUE, _FALSE, _BYTE}:
            return self._take(1)[0]
        if kind in _BITS:
            return self._integer()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._number())
        if kind == _LIST:
            head = self._take(1)[0]
            size = head >> 4 if head >> 4 < _LONG else self._number()
            return head & 15, [self._value(head & 15) for _ in range(size)]
        if kind == _STRUCT:
            return self.struct()
        raise ValueError(f"type {kind}")

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _number(self) -> int:
        value = shift = 0
        while (byte := self._take(1)[0]) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _integer(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)


def _struct(fields: Struct) -> bytes:
    found, last = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        written = (_TRUE if value else _FALSE) if kind <= _FALSE else kind
        step = number - last
        found += (
            bytes([step << 4 | written]) if 0 < step < 16 else bytes([written]) + _integer(number)
        )
        found += b"" if kind <= _FALSE else _value(kind, value)
        last = number
    return bytes(found) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in {_TRUE, _FALSE, _BYTE}:
        return bytes([value & 255])
    if kind in _BITS:
        return _integer(value)
    if kind == _DOUBLE:
        return bytes(value)
    if kind == _BINARY:
        return _number(len(value)) + value
    if kind == _LIST:
        inner, values = value
        size = len(values)
        head = bytes([size << 4 | inner]) if size < _LONG else bytes([0xF0 | inner]) + _number(size)
        return head + b"".join(_value(inner, one) for one in values)
    return _struct(value)


def _integer(value: int) -> bytes:
    return _number(value << 1 if value >= 0 else ((-value) << 1) - 1)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
