"""ORC and Avro files changed at random, and such whose few bytes stand for gigabytes, read as a table's files are."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from support.tables.random_rows import read, read_settings, shown, write, write_settings

from hostile.guard import WrongError
from hostile.parquet_edits import flipped
from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.data.rows.reader import FileSlice
from lake.core.io.avro.container import Block, encode_long, write_container
from lake.core.spec.types.arrow_schema import arrow_schema

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "list", ListType(6, StringType(), element_required=False)),
    NestedField(7, "part", StructType(NestedField(8, "raw", BinaryType()))),
    NestedField(9, "map", MapType(10, StringType(), 11, LongType(), value_required=False)),
)
_ROWS = 400
_LONGS = {"type": "array", "items": ["null", "long"]}


def _rows() -> pa.RecordBatch:
    made = [
        {
            "id": number,
            "text": None if number % 5 == 0 else f"text {number % 40}",
            "price": None if number % 3 == 0 else number,
            "at": number * 1_000_000,
            "list": None if number % 4 == 0 else [str(number), None][: number % 3],
            "part": None if number % 6 == 0 else {"raw": bytes([number % 256] * (number % 9))},
            "map": [("k", number), ("n", None)][: number % 3],
        }
        for number in range(_ROWS)
    ]
    return pa.RecordBatch.from_pylist(made, arrow_schema(_SCHEMA))


class Mutants:
    """A file with bytes changed at random: right rows, as many rows as there were, or a typed error."""

    count = 10**9

    def __init__(self, folder: Path, kind: str, codec: str) -> None:
        properties = {"write.format.default": kind, f"write.{kind}.compression-codec": codec}
        target = replace(write_settings(folder, _SCHEMA), properties=properties)
        (file,) = write(target, _rows())
        self._file = FileSlice.of(file)
        self._path = Path(file.path.removeprefix("file://"))
        self._data = self._path.read_bytes()
        self._right = shown(_rows().to_pylist())

    def attempt(self, number: int) -> str:
        """Read one."""
        chance = random.Random(f"format {number}")
        data = flipped(self._data, chance)
        if number % 3 == 0:
            # The header of an Avro file, the first stripe of an ORC file.
            front = flipped(self._data[:700], chance)
            data = front + self._data[700:]
        self._path.write_bytes(data)
        return _tried(self._file, _SCHEMA, self._right)


def _tried(file: FileSlice, schema: Schema, right: str | None) -> str:
    try:
        found = read(read_settings(schema), file)
    except (CorruptFileError, RefusedError):
        return "bad input"
    if found.num_rows != file.record_count:
        raise WrongError(f"{found.num_rows} rows of {file.record_count}")
    # Neither format has checksums of values: some changes are other values of as many rows.
    return "right" if right is None or shown(found.to_pylist()) == right else "other values"


_BOMB_TEXTS = Schema(NestedField(1, "x", StringType()))
_BOMB_LISTS = Schema(NestedField(1, "x", ListType(2, LongType(), element_required=False)))


class Bombs:
    """Files of kilobytes whose rows are gigabytes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "bomb"
        self._bombs: list[tuple[str, Any]] = [
            ("ORC", lambda: _orc(1_000_000, 4096)),
            ("ORC", lambda: _orc(5_000, 2**20)),
            ("AVRO", lambda: _avro({"type": "fixed", "name": "f", "size": 65536}, 500_000, b"")),
            ("AVRO", lambda: _avro(_LONGS, 6, encode_long(10**7) + bytes(10**7 + 1))),
            ("AVRO", lambda: _avro(_LONGS, 60, encode_long(10**7) + bytes(10**7 + 1))),
            ("AVRO", lambda: _avro("string", 600, encode_long(2**20) + b"x" * 2**20)),
        ]
        self.count = len(self._bombs)

    def attempt(self, number: int) -> str:
        """Read one."""
        kind, make = self._bombs[number]
        data, rows = make()
        self._path.write_bytes(data)
        file = FileSlice(
            path=str(self._path), format=kind, size_bytes=len(data), record_count=rows, spec_id=0
        )
        schema = _BOMB_LISTS if kind == "AVRO" and number in (3, 4) else _BOMB_TEXTS
        try:
            with_batches = _count(file, schema)
        except (CorruptFileError, RefusedError):
            return "bad input"
        if with_batches != rows:
            raise WrongError(f"{with_batches} rows of {rows}")
        return "right"


def _count(file: FileSlice, schema: Schema) -> int:
    from lake.core.data.rows.reader import read_batches
    from lake.core.io.storage.storage import Storage

    batches = read_batches(Storage(), file, read_settings(schema))
    return sum(batch.num_rows for batch in batches)


def _orc(rows: int, size: int) -> tuple[bytes, int]:
    """Return an ORC file whose one text is repeated so often."""
    sink = io.BytesIO()
    part = pa.table({"x": pa.array(["x" * size] * 500)})
    options = {"compression": "zlib", "dictionary_key_size_threshold": 1.0}
    with orc.ORCWriter(sink, stripe_size=2**40, **options) as writer:
        for _ in range(rows // 500):
            writer.write(part)
    return sink.getvalue(), rows // 500 * 500


def _avro(kind: Any, rows: int, value: bytes) -> tuple[bytes, int]:
    """Return an Avro file of one block of a value so often, or of NULLs."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", kind]}]}
    row = b"\x02" + value if value else b"\x00"
    return write_container(schema, [Block(rows, row * rows)], metadata={}), rows
