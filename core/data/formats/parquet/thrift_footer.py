"""Read from the bytes of a Parquet footer what PyArrow does not show: the order and exactness of minima and maxima.

Formats: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift and
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. Numbers overflow, and fields of
other types are skipped, as in the parser of PyArrow, which has accepted the footer before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

_FLAGS, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (1, 2), 3, 7, 8, 9, 10, 11, 12
_FIRST_NUMBER, _LAST_NUMBER = 4, 6
_DOUBLE_BYTES = 8
# The high four bits: 0, the field's id follows; 15, the list's size follows.
_NO_STEP, _LONG_LIST = 0, 15
# The bit of a number's byte after which another one follows.
_MORE = 0x80
# Field numbers of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and ColumnOrder.
_ROW_GROUPS, _ORDERS, _COLUMNS, _META_DATA, _STATISTICS, _TYPE_ORDER = 4, 7, 1, 3, 12, 1
# Field numbers of max and min, max_value and min_value.
_BOUNDS = ((1, 2), (5, 6))
# Field numbers of is_max_value_exact and is_min_value_exact, and the type of a flag that is false.
_EXACT, _FALSE = (7, 8), 2
# Field numbers of PageHeader, and the type of all three.
_PAGE_TYPE, _UNPACKED, _PACKED, _I32 = 1, 2, 3, 5


@dataclass(frozen=True, slots=True)
class BoundNotes:
    """What a footer says about minima and maxima, by the columns' positions.

    Args:
        typed: the columns that have the order of their type; PyArrow reads the deprecated values of all others.
        truncated: the columns of which a minimum or maximum is not a value of the column.
    """

    typed: frozenset[int]
    truncated: frozenset[int]


def bound_notes(footer: bytes, widths: Mapping[int, int]) -> BoundNotes:
    """Return the notes about the minima and maxima of columns, and check their lengths in all row groups.

    Args:
        footer: its bytes; others may follow.
        widths: the least number of bytes of an encoded value, by the column's position.

    Raises:
        pyarrow.ArrowInvalid: one is shorter, or the footer is not valid.
    """
    try:
        return _Footer(footer, widths).notes()
    except (IndexError, RecursionError) as error:
        raise pa.ArrowInvalid("the footer ends too early") from error


class PageHeader(NamedTuple):
    """The number of a page's type, the bytes of its header, and those of the page when unpacked and as stored."""

    kind: int
    length: int
    unpacked: int
    packed: int


def page_header(data: bytes) -> PageHeader:
    """Return the header of a page.

    Raises:
        IndexError: the header does not end in the data.
        pyarrow.ArrowInvalid: it is not valid.
    """
    return _Footer(data, {}).page()


class _Footer:
    """The position in the bytes of a footer, or of another struct."""

    def __init__(self, data: bytes, widths: Mapping[int, int]) -> None:
        self._data = data
        self._at = 0
        self._widths = widths
        self._typed: set[int] = set()
        self._truncated: set[int] = set()

    def notes(self) -> BoundNotes:
        for number, kind in self._fields():
            if number == _ROW_GROUPS and kind == _LIST:
                for _ in range(self._list_size()):
                    self._row_group()
            elif number == _ORDERS and kind == _LIST:
                for position in range(self._list_size()):
                    self._order(position)
            else:
                self._skip(kind)
        return BoundNotes(frozenset(self._typed), frozenset(self._truncated))

    def page(self) -> PageHeader:
        found = {_PAGE_TYPE: -1, _UNPACKED: 0, _PACKED: 0}
        for number, kind in self._fields():
            if number in found and kind == _I32:
                value, self._at = _number(self._data, self._at)
                found[number] = value >> 1 ^ -(value & 1)
            else:
                self._skip(kind)
        return PageHeader(
            found[_PAGE_TYPE], self._at, max(found[_UNPACKED], 0), max(found[_PACKED], 0)
        )

    def _order(self, position: int) -> None:
        for number, kind in self._fields():
            if number == _TYPE_ORDER and kind == _STRUCT:
                self._typed.add(position)
            self._skip(kind)

    def _row_group(self) -> None:
        for number, kind in self._fields():
            if number == _COLUMNS and kind == _LIST:
                for position in range(self._list_size()):
                    width = self._widths.get(position)
                    if width is None:
                        self._skip(_STRUCT)
                    else:
                        self._chunk(position, width)
            else:
                self._skip(kind)

    def _chunk(self, position: int, width: int) -> None:
        lengths: dict[int, int] = {}
        for number, kind in self._fields():
            if number == _META_DATA and kind == _STRUCT:
                for inner, inner_kind in self._fields():
                    if inner == _STATISTICS and inner_kind == _STRUCT:
                        self._statistics(position, lengths)
                    else:
                        self._skip(inner_kind)
            else:
                self._skip(kind)
        for pair in _BOUNDS:
            found = [lengths[number] for number in pair if number in lengths]
            if len(found) == len(pair) and min(found) < width:
                raise pa.ArrowInvalid(
                    f"column {position} has a minimum or maximum of {min(found)} bytes instead of {width}"
                )

    def _statistics(self, position: int, lengths: dict[int, int]) -> None:
        for number, kind in self._fields():
            if kind == _BINARY:
                lengths[number], self._at = _size(self._data, self._at)
                self._at += lengths[number]
            elif number in _EXACT and kind == _FALSE:
                self._truncated.add(position)
            else:
                self._skip(kind)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct; the caller reads or skips its value."""
        number = 0
        while head := self._data[self._at]:
            self._at += 1
            if head >> 4 != _NO_STEP:
                number += head >> 4
            else:
                value, self._at = _number(self._data, self._at)
                number = value >> 1 ^ -(value & 1)
            # Numbers of fields have 16 bits.
            number = (number + 2**15) % 2**16 - 2**15
            yield number, head & 15
        self._at += 1

    def _list_size(self) -> int:
        size = self._data[self._at] >> 4
        self._at += 1
        if size == _LONG_LIST:
            size, self._at = _size(self._data, self._at)
        return size

    def _skip(self, kind: int) -> None:
        self._at = _after(self._data, self._at, kind)


def _after(data: bytes, at: int, kind: int) -> int:
    """Return the position after the value of a field."""
    if _FIRST_NUMBER <= kind <= _LAST_NUMBER:
        return _after_number(data, at)
    if kind in _FLAGS:
        return at
    if kind == _BINARY:
        size, at = _size(data, at)
        return at + size
    if kind == _STRUCT:
        return _after_struct(data, at)
    if kind in (_LIST, _SET):
        return _after_list(data, at)
    if kind == _MAP:
        return _after_map(data, at)
    if kind == _BYTE:
        return at + 1
    if kind == _DOUBLE:
        return at + _DOUBLE_BYTES
    raise pa.ArrowInvalid(f"the footer has a value of the type {kind}")


def _after_struct(data: bytes, at: int) -> int:
    while head := data[at]:
        at += 1
        if head >> 4 == _NO_STEP:
            at = _after_number(data, at)
        kind = head & 15
        # Most fields are numbers.
        if _FIRST_NUMBER <= kind <= _LAST_NUMBER:
            while data[at] >= _MORE:
                at += 1
            at += 1
        else:
            at = _after(data, at, kind)
    return at + 1


def _after_list(data: bytes, at: int) -> int:
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == _LONG_LIST:
        size, at = _size(data, at)
    for _ in range(size):
        at = _after_element(data, at, kind)
    return at


def _after_map(data: bytes, at: int) -> int:
    size, at = _size(data, at)
    if size == 0:
        return at
    key, value = data[at] >> 4, data[at] & 15
    at += 1
    for _ in range(size):
        at = _after_element(data, _after_element(data, at, key), value)
    return at


def _after_element(data: bytes, at: int, kind: int) -> int:
    # Unlike that of a field, an element's flag is a byte.
    return _after(data, at, _BYTE if kind in _FLAGS else kind)


def _after_number(data: bytes, at: int) -> int:
    while data[at] >= _MORE:
        at += 1
    return at + 1


def _size(data: bytes, at: int) -> tuple[int, int]:
    value, at = _number(data, at)
    return value & 0xFFFFFFFF, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and the position after it."""
    value = shift = 0
    while (byte := data[at]) >= _MORE:
        value |= (byte - _MORE) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1
