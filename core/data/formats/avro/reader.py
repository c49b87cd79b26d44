"""Read rows from an Avro file, several blocks at a time.

As in Iceberg Java, a block belongs to the slice in which the preceding sync marker begins. The position of a row
depends on the row counts of all blocks before it, so the reader steps over these without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.arrow import one_array
from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.column_mapping import ColumnMapping
from lake.core.data.columns.data_file import Leaves, check_count
from lake.core.data.columns.file_slice import FileSlice
from lake.core.data.formats.avro.types import RowType
from lake.core.io.avro.container import LONG_BYTES, Block, Cursor, Header, read_header
from lake.core.io.avro.decode import Layout, decode

_SYNC_BYTES = 16
# Writers end blocks at some kilobytes; Arrow uses up to sixteen bytes for one byte of a block.
_MAX_BLOCK_BYTES = 64 * 1024 * 1024
# The memory that NULLs of fixed width may use, each of which may be one byte in the file.
_MAX_BATCH_BYTES = 1024 * 1024 * 1024
# Bytes to fetch at once.
_LOCAL_BYTES, _REMOTE_BYTES = 256 * 1024, 4 * 1024 * 1024
# The approximate ratio of Arrow's size to the size of Avro rows.
_EXPANSION = 2


class PackedBlock(NamedTuple):
    """A compressed block; the preceding sync marker begins at `marker`."""

    header: Header
    marker: int
    objects: int
    data: memoryview

    def block(self) -> Block:
        """Decompress the block."""
        return Block(self.objects, self.header.inflate(self.data, _MAX_BLOCK_BYTES))


class AvroPiece(NamedTuple):
    """Rows of a block to read: the block's first position, the rows to skip, and the rows to read."""

    start: int
    skip: int
    rows: int
    block: Block


class AvroContainer:
    """An open Avro file, block by block."""

    def __init__(self, source: Any, path: str) -> None:
        self.path = path
        self._cursor = FileCursor(source, path)
        self._header = read_header(self._cursor)
        self.rows = RowType.parse(self._header.metadata["avro.schema"], name=path)
        self.schema: pa.Schema = pa.schema(list(self.rows.columns.arrow))

    def blocks(self) -> Iterator[PackedBlock]:
        """Yield all compressed blocks."""
        while not self._cursor.at_end:
            marker = self._cursor.position - _SYNC_BYTES
            objects, packed = self._header.next_block(self._cursor)
            yield PackedBlock(self._header, marker, objects, packed)

    def batches(
        self, pieces: Iterable[AvroPiece], names: Sequence[str], most_bytes: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Decode columns of pieces; yield each batch with the position of its first row."""
        decoder = RowDecoder(self.rows, names, self.path)
        waiting: list[AvroPiece] = []
        size = 0
        for piece in pieces:
            size += len(piece.block.data)
            if waiting and (size * _EXPANSION > most_bytes or not _is_adjacent(waiting[-1], piece)):
                yield _decoded(decoder, waiting)
                waiting, size = [], len(piece.block.data)
            waiting.append(piece)
        if waiting:
            yield _decoded(decoder, waiting)

    def all_rows(self, most_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows in batches, each with the position of its first row."""
        yield from self.batches(self._all_pieces(), self.schema.names, most_bytes)

    def _all_pieces(self) -> Iterator[AvroPiece]:
        position = 0
        for packed in self.blocks():
            yield AvroPiece(position, 0, packed.objects, packed.block())
            position += packed.objects


class AvroRows:
    """An open Avro file; see `lake.core.data.columns.data_file.RowFile`."""

    def __init__(self, source: Any, file: FileSlice) -> None:
        self._file = file
        self._container = AvroContainer(source, file.path)
        self.schema = self._container.schema

    def batches(
        self, columns: ColumnMapping, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows with the file's types, each batch with the position of its first row."""
        most_bytes = columns.settings.batch_bytes
        yield from self._container.batches(self._pieces(leaves), columns.names, most_bytes)

    def _pieces(self, leaves: Leaves | None) -> Iterator[AvroPiece]:
        """Yield the slice's rows block by block. The slice with the last block checks the file's row count."""
        file = self._file
        end = float("inf") if file.length is None else file.start + file.length
        remaining = float("inf") if file.take_rows is None else file.take_rows
        skip, position = file.skip_rows, 0
        for packed in self._container.blocks():
            if (packed.marker >= end or not remaining) and position < file.record_count:
                return
            if file.start <= packed.marker < end:
                skipped = min(skip, packed.objects)
                rows = int(min(packed.objects - skipped, remaining))
                skip, remaining = skip - skipped, remaining - rows
                if rows and (leaves is None or leaves(position + skipped, rows)):
                    yield AvroPiece(position, skipped, rows, packed.block())
            position += packed.objects
            if position > file.record_count:
                break
        check_count(file, position)


def _is_adjacent(last: AvroPiece, piece: AvroPiece) -> bool:
    """Whether a piece begins where the last one ended."""
    return (
        not piece.skip
        and last.skip + last.rows == last.block.objects
        and piece.start == last.start + last.block.objects
    )


def _decoded(decoder: RowDecoder, pieces: list[AvroPiece]) -> tuple[int, pa.RecordBatch]:
    batch = decoder.rows([piece.block for piece in pieces])
    first = pieces[0]
    return first.start + first.skip, batch.slice(first.skip, sum(piece.rows for piece in pieces))


@dataclass(slots=True)
class RowDecoder:
    """Decodes blocks to rows.

    Args:
        kind: the type of the rows.
        names: the columns to decode.
        path: the file's location, for messages.
    """

    kind: RowType
    names: Sequence[str]
    path: str
    _layout: Layout = field(init=False)
    _positions: dict[int, int] = field(init=False)
    _blank_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self._layout = self.kind.layout
        wanted, fields = set(self.names), self.kind.columns.fields
        indices = [index for index, item in enumerate(fields) if item.name in wanted]
        self._positions = {index: position for position, index in enumerate(indices)}
        self._blank_bytes = self.kind.fixed_bytes

    def rows(self, blocks: list[Block]) -> pa.RecordBatch:
        """Decode blocks.

        Raises:
            CorruptFileError: they do not match the schema.
        """
        total = sum(block.objects for block in blocks)
        if total * self._blank_bytes > _MAX_BATCH_BYTES:
            raise CorruptFileError(
                f"{self.path} has a block of {total} rows, which does not fit in memory"
            )
        all_fields = self.kind.columns.fields
        fields = [all_fields[index] for index in self._positions]
        stored = [f"f{index}" for index in self._positions if all_fields[index].kind]
        # Without columns to read, decode one all the same to check that the rows exist.
        stored = stored or sorted(self._layout.columns)[:1]
        found = decode(self._layout, blocks, stored, name=self.path) if stored else pa.table({})
        columns = []
        for index, item in zip(self._positions, fields, strict=True):
            if item.kind is None:
                columns.append(pa.nulls(total))
            else:
                columns.append(item.kind.restore(one_array(found[f"f{index}"])))
                columns[-1].validate(full=True)
        schema = pa.schema([item.arrow for item in fields])
        if columns:
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        return pa.RecordBatch.from_arrays([pa.nulls(total)], ["none"]).select([])


class FileCursor(Cursor):
    """A position in a file that is read in larger parts."""

    def __init__(self, source: Any, name: str) -> None:
        super().__init__(b"", name)
        self._source = source
        self._size = source.size()
        self._first = 0
        self._fetch = _LOCAL_BYTES if locations.parse(name).is_local else _REMOTE_BYTES

    @property
    def position(self) -> int:
        """The offset of the next byte in the file."""
        return self._first + self._at

    @property
    def at_end(self) -> bool:
        """Whether all bytes were read."""
        return bool(self.position >= self._size)

    def take(self, length: int) -> memoryview:
        """Return exactly the next ``length`` bytes."""
        self._load(length)
        return super().take(length)

    def long(self) -> int:
        """Return the next integer."""
        self._load(min(LONG_BYTES, self._size - self.position))
        return super().long()

    def _load(self, length: int) -> None:
        """Fetch the next bytes, if the file has that many."""
        missing = self._at + length - len(self._data)
        if length > 0 and missing > 0 and self.position + length <= self._size:
            rest = bytes(self._data[self._at :])
            self._first, self._at = self.position, 0
            self._source.seek(self._first + len(rest))
            self._data = memoryview(rest + self._source.read(max(missing, self._fetch)))
