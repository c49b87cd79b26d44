"""Rows out of an Avro file, some blocks at a time.

A block belongs to the slice in which the sync marker before it begins, as in Iceberg Java. Where a row stands is
told by the blocks before it, so these are walked over, unread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from lake.core import locations
from lake.core.arrow import one_array
from lake.core.avro.container import LONG_BYTES, Block, Cursor, Header, read_header
from lake.core.avro.decode import Layout, decode
from lake.core.columns.column_mapping import FileColumns
from lake.core.columns.data_file import Leaves, check_count
from lake.core.columns.file_slice import FileSlice
from lake.core.errors import CorruptFileError
from lake.core.formats.avro.types import Fixed, Record, nodes, row_type

_SYNC_BYTES = 16
# Writers end blocks at kilobytes; Arrow takes up to sixteen bytes for one of a block.
_MAX_BLOCK_BYTES = 64 * 1024 * 1024
# What NULLs of fixed width may take in memory, where a byte in the file may stand for each.
_MAX_BATCH_BYTES = 1024 * 1024 * 1024
# Bytes that are fetched at once.
_LOCAL_BYTES, _REMOTE_BYTES = 256 * 1024, 4 * 1024 * 1024
# Arrow columns take about so many times the bytes of rows.
_EXPANSION = 2


class Packed(NamedTuple):
    """A block as it is in the file; its sync marker begins at `marker`."""

    header: Header
    marker: int
    objects: int
    data: memoryview

    def block(self) -> Block:
        """Unpack it."""
        return Block(self.objects, self.header.inflate(self.data, _MAX_BLOCK_BYTES))


class Piece(NamedTuple):
    """Rows of a block that are wanted: its first row's position, how many of it are skipped, how many taken."""

    start: int
    skip: int
    rows: int
    block: Block


class AvroContainer:
    """An open Avro file, block by block.

    Args:
        source: its bytes, for random access.
        path: where it lies.
    """

    def __init__(self, source: Any, path: str) -> None:
        self.path = path
        self._cursor = FileCursor(source, path)
        self._header = read_header(self._cursor)
        self.rows = row_type(self._header.metadata["avro.schema"], name=path)
        self.schema: pa.Schema = pa.schema(list(self.rows.arrow))

    def blocks(self) -> Iterator[Packed]:
        """Yield all blocks as they are packed."""
        while not self._cursor.at_end:
            marker = self._cursor.position - _SYNC_BYTES
            objects, packed = self._header.next_block(self._cursor)
            yield Packed(self._header, marker, objects, packed)

    def batches(
        self, pieces: Iterable[Piece], names: Sequence[str], most_bytes: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Decode columns of pieces, each batch with its first row's position."""
        decoder = RowDecoder(self.rows, names, self.path)
        waiting: list[Piece] = []
        size = 0
        for piece in pieces:
            size += len(piece.block.data)
            if waiting and (size * _EXPANSION > most_bytes or not _goes_on(waiting[-1], piece)):
                yield _decoded(decoder, waiting)
                waiting, size = [], len(piece.block.data)
            waiting.append(piece)
        if waiting:
            yield _decoded(decoder, waiting)

    def all_rows(self, most_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows in batches, each with its first row's position."""
        yield from self.batches(self._all_pieces(), self.schema.names, most_bytes)

    def _all_pieces(self) -> Iterator[Piece]:
        position = 0
        for packed in self.blocks():
            yield Piece(position, 0, packed.objects, packed.block())
            position += packed.objects


class AvroRows:
    """An open Avro file; see `lake.core.columns.data_file.RowFile`."""

    def __init__(self, source: Any, file: FileSlice) -> None:
        self._file = file
        self._container = AvroContainer(source, file.path)
        self.schema = self._container.schema

    def batches(
        self, columns: FileColumns, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows as the file has them, each batch with its first row's position."""
        most_bytes = columns.settings.batch_bytes
        yield from self._container.batches(self._pieces(leaves), columns.names, most_bytes)

    def _pieces(self, leaves: Leaves | None) -> Iterator[Piece]:
        """Yield the slice's rows block by block; the whole file's are counted by whoever reads its last."""
        file = self._file
        end = float("inf") if file.length is None else file.start + file.length
        left = float("inf") if file.take_rows is None else file.take_rows
        skip, position = file.skip_rows, 0
        for packed in self._container.blocks():
            if (packed.marker >= end or not left) and position < file.record_count:
                return
            if file.start <= packed.marker < end:
                skipped = min(skip, packed.objects)
                rows = int(min(packed.objects - skipped, left))
                skip, left = skip - skipped, left - rows
                if rows and (leaves is None or leaves(position + skipped, rows)):
                    yield Piece(position, skipped, rows, packed.block())
            position += packed.objects
            if position > file.record_count:
                break
        check_count(file, position)


def _goes_on(last: Piece, piece: Piece) -> bool:
    """Whether a piece begins where another ended."""
    return (
        not piece.skip
        and last.skip + last.rows == last.block.objects
        and piece.start == last.start + last.block.objects
    )


def _decoded(decoder: RowDecoder, pieces: list[Piece]) -> tuple[int, pa.RecordBatch]:
    batch = decoder.rows([piece.block for piece in pieces])
    first = pieces[0]
    return first.start + first.skip, batch.slice(first.skip, sum(piece.rows for piece in pieces))


@dataclass(slots=True)
class RowDecoder:
    """Makes rows of blocks.

    Args:
        kind: the rows' type.
        names: the columns to decode.
        path: the file's, for messages.
    """

    kind: Record
    names: Sequence[str]
    path: str
    _layout: Layout = field(init=False)
    _places: dict[int, int] = field(init=False)
    _blank_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        plain = self.kind.plain(count())
        names = frozenset(item["name"] for item in plain["fields"])
        self._layout = Layout(json.dumps(plain), self.kind.blank, names)
        wanted = set(self.names)
        places = [index for index, item in enumerate(self.kind.fields) if item.name in wanted]
        self._places = {index: place for place, index in enumerate(places)}
        self._blank_bytes = sum(item.size for item in nodes(self.kind) if isinstance(item, Fixed))

    def rows(self, blocks: list[Block]) -> pa.RecordBatch:
        """Decode blocks.

        Raises:
            CorruptFileError: they do not hold what the schema says.
        """
        total = sum(block.objects for block in blocks)
        if total * self._blank_bytes > _MAX_BATCH_BYTES:
            raise CorruptFileError(
                f"{self.path} has a block of {total} rows that memory cannot hold"
            )
        fields = [self.kind.fields[index] for index in self._places]
        stored = [f"f{index}" for index in self._places if self.kind.fields[index].kind]
        # Where no column is wanted, one tells all the same whether the rows are there.
        stored = stored or sorted(self._layout.columns)[:1]
        found = decode(self._layout, blocks, stored, name=self.path) if stored else pa.table({})
        columns = []
        for index, item in zip(self._places, fields, strict=True):
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
    """A position in a file, of which some bytes are in memory."""

    def __init__(self, source: Any, name: str) -> None:
        super().__init__(b"", name)
        self._source = source
        self._size = source.size()
        self._first = 0
        self._fetch = _LOCAL_BYTES if locations.parse(name).is_local else _REMOTE_BYTES

    @property
    def position(self) -> int:
        """The next byte's offset in the file."""
        return self._first + self._at

    @property
    def at_end(self) -> bool:
        """Whether no byte is left."""
        return bool(self.position >= self._size)

    def take(self, length: int) -> memoryview:
        """Return the next bytes, exactly so many."""
        self._load(length)
        return super().take(length)

    def long(self) -> int:
        """Return the next integer."""
        self._load(min(LONG_BYTES, self._size - self.position))
        return super().long()

    def _load(self, length: int) -> None:
        """Fetch the next bytes if the file has as many."""
        missing = self._at + length - len(self._data)
        if length > 0 and missing > 0 and self.position + length <= self._size:
            rest = bytes(self._data[self._at :])
            self._first, self._at = self.position, 0
            self._source.seek(self._first + len(rest))
            self._data = memoryview(rest + self._source.read(max(missing, self._fetch)))
