"""Parquet files with wrong values, and with bytes changed at random."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_END = 8
LARGE = "two hundred thousand row groups"
_FIELD_ID = b"PARQUET:field_id"


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Return a file with bits or bytes changed: anywhere, in the footer, or in the last bytes; or cut."""
    found = bytearray(data)
    footer = struct.unpack("<i", data[-_END:-4])[0] + _END if len(data) > _END else len(data)
    for _ in range(chance.choice((1, 1, 1, 1, 2, 5))):
        begin = len(found) - chance.choice(
            (len(found), len(found), min(footer, len(found)), min(_END, len(found)))
        )
        if begin >= len(found):
            break
        at = chance.randrange(begin, len(found))
        match chance.choice(
            ("bit", "bit", "bit", "bit", "byte", "byte", "drop", "cut", "zero", "repeat")
        ):
            case "bit":
                found[at] ^= 1 << chance.randrange(8)
            case "byte":
                found[at] = chance.randrange(256)
            case "drop":
                del found[at : at + chance.choice((1, 4, 64))]
            case "cut":
                del found[at:]
            case "zero":
                found[at : at + 16] = bytes(len(found[at : at + 16]))
            case "repeat":
                found[at:at] = found[at : at + chance.choice((1, 4, 64))]
    return bytes(found)


def wrong_footers(data: bytes) -> dict[str, bytes]:
    """Return files whose ends give a wrong length of the footer."""
    length = struct.unpack("<i", data[-_END:-4])[0]
    found = {
        f"footer of {stated}": data[:-_END] + struct.pack("<I", stated % 2**32) + _MAGIC
        for stated in (
            0,
            1,
            length - 1,
            length + 1,
            len(data),
            len(data) * 2,
            2**31 - 1,
            2**31,
            2**32 - 1,
        )
    }
    found |= {f"cut by {count}": data[:-count] for count in (1, 4, 8, 9, length, length + 8)}
    found["only magic"] = _MAGIC
    found["magic twice"] = _MAGIC * 2
    found["nothing"] = b""
    found["encrypted"] = data[:-4] + b"PARE"
    found["doubled"] = data + data
    found["zeros"] = bytes(len(data))
    return found


def footer(data: bytes) -> bytes:
    """Return a file's footer."""
    length = struct.unpack("<i", data[-_END:-4])[0]
    return data[-_END - length : -_END]


def with_footer(data: bytes, changed: bytes) -> bytes:
    """Return a file with another footer."""
    body = data[: -_END - len(footer(data))]
    return body + changed + struct.pack("<I", len(changed)) + _MAGIC


def many_groups(data: bytes, count: int) -> bytes:
    """Return a file whose footer lists its first row group again and again."""
    old = footer(data)
    (start, first, end), _ = _groups(old)
    return with_footer(
        data,
        old[:start] + b"\xfc" + _varint(count) + old[first:end] * count + old[_list_end(old) :],
    )


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _list_end(data: bytes) -> int:
    return _groups(data)[1]


def _groups(data: bytes) -> tuple[tuple[int, int, int], int]:
    """Return where the list of row groups begins, its first begins and ends, and where the list ends."""
    reader = _Thrift(data)
    for number, kind in reader.fields():
        if number == 4:
            start = reader.at
            size, of = reader.list_head()
            first = reader.at
            reader.skip(of)
            end = reader.at
            for _ in range(size - 1):
                reader.skip(of)
            return (start, first, end), reader.at
        reader.skip(kind)
    raise ValueError("no row groups")


class _Thrift:
    """Walks Thrift's compact encoding. Source: thrift-compact-protocol.md."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self) -> Any:
        number = 0
        while (byte := self._byte()) != 0:
            delta = byte >> 4
            number = number + delta if delta else self._zigzag()
            yield number, byte & 15

    def list_head(self) -> tuple[int, int]:
        byte = self._byte()
        size = byte >> 4
        return (self._varint() if size == 15 else size), byte & 15

    def skip(self, kind: int) -> None:
        if kind in {1, 2}:
            return
        if kind == 3:
            self.at += 1
        elif kind in {4, 5, 6}:
            self._varint()
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            length = self._varint()
            self.at += length
        elif kind in {9, 10}:
            size, of = self.list_head()
            for _ in range(size):
                self.skip(of)
        elif kind == 12:
            for _, of in self.fields():
                self.skip(of)
        else:
            raise ValueError(f"kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def rewritten(data: bytes, change: Callable[[pa.Table], pa.Table], **options: Any) -> bytes:
    """Return a whole, honest Parquet file with other content."""
    table = change(pq.read_table(io.BytesIO(data), partitioning=None))
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    return sink.getvalue()


def wrong_contents(data: bytes) -> dict[str, bytes]:
    """Return files with other rows, columns or types than the table's metadata says."""

    def column(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
        def change(table: pa.Table) -> pa.Table:
            at = table.schema.get_field_index(name)
            if at < 0:
                raise KeyError(name)
            made = values(table)
            field = pa.field(name, made.type, metadata=table.schema.field(at).metadata)
            return table.set_column(at, field, made)

        return change

    def of_type(kind: pa.DataType) -> Callable[[pa.Table], Any]:
        return lambda table: pa.nulls(table.num_rows, kind)

    changes: dict[str, Callable[[pa.Table], pa.Table]] = {
        "a row too many": lambda table: pa.concat_tables([table, table.slice(0, 1)]),
        "a row too few": lambda table: table.slice(1),
        "no rows": lambda table: table.slice(0, 0),
        "no columns": lambda table: table.select([]),
        "ids as text": column("id", lambda table: table["id"].cast(pa.string())),
        "ids as doubles": column("id", lambda table: table["id"].cast(pa.float64())),
        "ids as lists": column("id", of_type(pa.list_(pa.int64()))),
        "ids as structs": column("id", of_type(pa.struct([("a", pa.int64())]))),
        "ids in both columns": lambda table: table.append_column(
            pa.field("again", pa.int64(), metadata=table.schema.field("id").metadata), table["id"]
        ),
        "positions negative": column("pos", lambda table: pa.array([-1] * table.num_rows)),
        "positions too large": column("pos", lambda table: pa.array([2**40] * table.num_rows)),
        "positions beyond all": column("pos", lambda table: pa.array([2**63 - 1] * table.num_rows)),
        "positions null": column("pos", of_type(pa.int64())),
        "positions as text": column("pos", of_type(pa.string())),
        "positions unsorted": lambda table: (
            table.take(pa.array(range(table.num_rows - 1, -1, -1)))
            if "pos" in table.column_names
            else table.drop_columns(["pos"])
        ),
        "paths null": column("file_path", of_type(pa.string())),
        "paths foreign": column(
            "file_path", lambda table: pa.array(["/etc/passwd"] * table.num_rows)
        ),
        "paths odd": column("file_path", lambda table: pa.array(["\0\n../.."] * table.num_rows)),
        "no checksum": lambda table: table,
    }
    found = {}
    for name, change in changes.items():
        try:
            found[name] = rewritten(data, change)
        except (KeyError, ValueError, pa.ArrowException):
            continue
    found["rows in many groups"] = rewritten(data, lambda table: table, row_group_size=1)
    found["a thousand row groups too many"] = many_groups(data, 1000)
    found[LARGE] = many_groups(data, 200_000)
    return found


def deep(levels: int, rows: int) -> bytes:
    """Return a file with a column so deep."""
    kind: pa.DataType = pa.int64()
    for _ in range(levels):
        kind = pa.struct([pa.field("a", kind)])
    sink = io.BytesIO()
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={_FIELD_ID: b"1"}),
            pa.field("deep", kind, metadata={_FIELD_ID: b"2"}),
        ]
    )
    table = pa.table([pa.array(range(rows), pa.int64()), pa.nulls(rows, kind)], schema=schema)
    pq.write_table(table, sink)
    return sink.getvalue()


def dictionary_bomb(rows: int, length: int) -> bytes:
    """Return a small file with many rows of one long text."""
    text = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * length])
    )
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={_FIELD_ID: b"1"}),
            pa.field("part", text.type, metadata={_FIELD_ID: b"2"}),
        ]
    )
    sink = io.BytesIO()
    pq.write_table(
        pa.table([pa.array(range(rows), pa.int64()), text], schema=schema),
        sink,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=2 * length,
    )
    return sink.getvalue()
