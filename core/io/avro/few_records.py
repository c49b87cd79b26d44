"""Decode the records of a small file into Arrow columns, without the decoder that takes longer to start than to run.

It reads the flat schema of a `Layout` and is as strict as the other decoder: whatever bytes a file has, the result is
its records or an error.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.io.avro.container import long_at

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_BLANK = {"boolean": False, "float": 0.0, "double": 0.0, "bytes": b"", "string": b""}


def decode_few(
    schema_json: str, records: int, data: bytes, columns: Sequence[str], name: str
) -> pa.Table:
    """Return columns of records.

    Args:
        schema_json: their flat schema, see `lake.core.io.avro.decode.Layout`.
        records: how many there are.
        data: their encoding.
        columns: the names of the columns to return.
        name: the location of the file, for messages.

    Raises:
        CorruptFileError: the bytes are not that many records of the schema.
    """
    kept, skipped = (_Reading(data, name, is_kept=is_kept) for is_kept in (True, False))
    fields = {
        item["name"]: (kept if item["name"] in columns else skipped).column(item["type"])
        for item in json.loads(schema_json)["fields"]
    }
    every = list(fields.values())
    at = 0
    try:
        for _ in range(records):
            for column in every:
                at = column.read(at)
    except CorruptFileError as error:
        raise CorruptFileError(f"{name} contains records that do not decode") from error
    if at != len(data):
        raise CorruptFileError(f"{name} contains other records than its blocks declare")
    try:
        arrays = {column: fields[column].array() for column in columns}
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptFileError(f"{name} contains invalid values") from error
    return pa.table(list(arrays.values()), pa.schema([fields[item].field(item) for item in arrays]))


class _Column:
    """The values of a field so far, as the encoding has them.

    Args:
        read: appends the value at a position, and returns the position after it.
        blank: appends a value where the record is null.
        array: returns all values.
        kind: their type.
        is_nullable: whether they may be null.
    """

    def __init__(
        self,
        read: Callable[[int], int],
        blank: Callable[[], None],
        array: Callable[[], pa.Array],
        kind: pa.DataType,
        *,
        is_nullable: bool,
    ) -> None:
        self.read, self.blank, self.array = read, blank, array
        self.kind, self.is_nullable = kind, is_nullable

    def field(self, name: str) -> pa.Field:
        """Return the field of a schema."""
        return pa.field(name, self.kind, nullable=self.is_nullable)


class _Reading:
    """Makes the columns that read some bytes; if they are not kept, they contain nothing afterwards.

    A null of a record of many fields is one byte, and a value in each of them.
    """

    def __init__(self, data: bytes, name: str, *, is_kept: bool) -> None:
        self._data, self._name, self._is_kept = data, name, is_kept

    def _values(self) -> Any:
        return [] if self._is_kept else deque(maxlen=0)

    def column(self, kind: Any) -> _Column:
        """Return a column of a type, JSON-ready."""
        null_at = None
        if isinstance(kind, list):
            null_at = kind.index("null")
            kind = kind[1 - null_at]
        is_nullable = null_at is not None
        match kind:
            case {"type": "record"}:
                made, add_null = self._record(kind["fields"], is_nullable=is_nullable)
            case {"type": "array"}:
                made, add_null = self._list(kind["items"], is_nullable=is_nullable)
            case {"type": "fixed"}:
                made, add_null = self._fixed(kind["size"], is_nullable=is_nullable)
            case _:
                made, add_null = self._value(kind, is_nullable=is_nullable)
        if null_at is not None:
            made.read = self._optional(made.read, add_null if self._is_kept else None, null_at)
        return made

    def _optional(
        self, read: Callable[[int], int], add_null: Callable[[], None] | None, null_at: int
    ) -> Callable[[int], int]:
        data, name = self._data, self._name

        def optional(at: int) -> int:
            branch, at = long_at(data, at, name)
            if branch == null_at:
                if add_null is not None:
                    add_null()
                return at
            if branch != 1 - null_at:
                raise CorruptFileError(self._name)
            return read(at)

        return optional

    def _value(self, kind: str, *, is_nullable: bool) -> tuple[_Column, Callable[[], None]]:
        data, name, values = self._data, self._name, self._values()
        append = values.append

        def number(at: int) -> int:
            value, at = long_at(data, at, name)
            append(value)
            return at

        def flag(at: int) -> int:
            append(self._cut(at, 1) != b"\x00")
            return at + 1

        def text(at: int) -> int:
            size, at = long_at(data, at, name)
            append(self._cut(at, size))
            return at + size

        def real(at: int) -> int:
            form = _FLOATS[kind]
            append(form.unpack(self._cut(at, form.size))[0])
            return at + form.size

        def array() -> pa.Array:
            # The texts of a binary array are checked when it becomes one of strings.
            return (
                pa.array(values, pa.binary()).cast(found)
                if kind == "string"
                else pa.array(values, found)
            )

        found = PRIMITIVES[kind]
        read = {"boolean": flag, "bytes": text, "string": text, "float": real, "double": real}
        blank = None if is_nullable else _BLANK.get(kind, 0)
        made = _Column(
            read.get(kind, number), lambda: append(blank), array, found, is_nullable=is_nullable
        )
        return made, lambda: append(None)

    def _fixed(self, size: int, *, is_nullable: bool) -> tuple[_Column, Callable[[], None]]:
        values = self._values()

        def read(at: int) -> int:
            values.append(self._cut(at, size))
            return at + size

        kind, blank = pa.binary(size), None if is_nullable else bytes(size)
        made = _Column(
            read,
            lambda: values.append(blank),
            lambda: pa.array(values, kind),
            kind,
            is_nullable=is_nullable,
        )
        return made, lambda: values.append(None)

    def _list(self, items: Any, *, is_nullable: bool) -> tuple[_Column, Callable[[], None]]:
        data, name, item = self._data, self._name, self.column(items)
        offsets, nulls, count = self._values(), self._values(), 0
        offsets.append(0)

        def read(at: int) -> int:
            nonlocal count
            size, at = long_at(data, at, name)
            while size:
                if size < 0:
                    # The bytes of the block follow, with which a reader can skip it.
                    size, (_, at) = -size, long_at(data, at, name)
                if size > len(data) - at:
                    raise CorruptFileError(self._name)
                for _ in range(size):
                    at = item.read(at)
                count += size
                size, at = long_at(data, at, name)
            offsets.append(count)
            nulls.append(False)
            return at

        def add_null() -> None:
            offsets.append(count)
            nulls.append(True)

        def array() -> pa.Array:
            mask = pa.array(nulls, pa.bool_()) if is_nullable else None
            return pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), item.array(), kind, mask=mask
            )

        def blank() -> None:
            offsets.append(count)
            nulls.append(is_nullable)

        kind = pa.list_(item.field("item"))
        return _Column(read, blank, array, kind, is_nullable=is_nullable), add_null

    def _record(self, fields: Any, *, is_nullable: bool) -> tuple[_Column, Callable[[], None]]:
        parts = {item["name"]: self.column(item["type"]) for item in fields}
        every, nulls = list(parts.values()), self._values()

        def read(at: int) -> int:
            for part in every:
                at = part.read(at)
            nulls.append(False)
            return at

        def absent(*, is_null: bool) -> None:
            for part in every:
                part.blank()
            nulls.append(is_null)

        def array() -> pa.Array:
            mask = pa.array(nulls, pa.bool_()) if is_nullable else None
            return pa.StructArray.from_arrays(
                [part.array() for part in every], fields=list(kind), mask=mask
            )

        kind = pa.struct([part.field(name) for name, part in parts.items()])
        made = _Column(
            read, lambda: absent(is_null=is_nullable), array, kind, is_nullable=is_nullable
        )
        return made, lambda: absent(is_null=True)

    def _cut(self, at: int, size: int) -> bytes:
        """Return the bytes at a position."""
        if size < 0 or at + size > len(self._data):
            raise CorruptFileError(self._name)
        return self._data[at : at + size]
