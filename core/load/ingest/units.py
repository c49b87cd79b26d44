"""The units of a load: the files, or pieces of them, that its tasks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lake.core.data.rows.reader import FileSlice
from lake.core.data.sources.batches import split_parquet
from lake.core.data.sources.discovery import Source
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest.payloads import SourceUnit

_PIECE_BYTES = 128 * 1024 * 1024
# Rows of text files are about this many times as large as in Parquet.
_TEXT_RATIO = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """A file, or a piece of one, that one task reads, and about what it weighs.

    `number` is a data file's place among the live files of the source table.
    """

    read: SourceUnit
    weight: int
    number: int | None = None

    @property
    def input_bytes(self) -> int:
        """Bytes that are read."""
        return self.read.input_bytes


def units_of_slices(files: Sequence[FileSlice]) -> list[Unit]:
    """Return the units of a table's data files, those of older commits first; large files are read in pieces.

    Of rows with one key, the last one counts: that of the newest commit.

    Args:
        files: the files in the order of their numbers.
    """
    # check: order-of-table-rows
    in_order = sorted(enumerate(files), key=lambda item: (item[1].sequence_number, item[1].path))
    return [
        Unit(SourceUnit(file=piece, input_bytes=bytes_read), bytes_read, number)
        for number, file in in_order
        for piece, bytes_read in _pieces(file)
    ]


def units_of_files(storage: Storage, files: Sequence[Source]) -> list[Unit]:
    """Return the units of files; large Parquet files are read in pieces.

    Raises:
        BadInputError: a footer cannot be read.
    """
    return [
        Unit(SourceUnit(source=piece, input_bytes=piece.size_bytes), _weight(piece))
        for file in files
        for piece in split_parquet(storage, file, _PIECE_BYTES)
    ]


def _pieces(file: FileSlice) -> list[tuple[FileSlice, int]]:
    """Cut a data file into ranges of bytes; a row group belongs to the range that it begins in."""
    if file.size_bytes <= _PIECE_BYTES:
        return [(file, file.size_bytes)]
    starts = range(0, file.size_bytes, _PIECE_BYTES)
    return [
        (
            replace(file, start=start, length=_PIECE_BYTES),
            min(_PIECE_BYTES, file.size_bytes - start),
        )
        for start in starts
    ]


def _weight(piece: Source) -> int:
    packed = piece.path.endswith((".gz", ".bz2", ".zst", ".lz4"))
    return piece.size_bytes // _TEXT_RATIO if piece.is_text and not packed else piece.size_bytes
