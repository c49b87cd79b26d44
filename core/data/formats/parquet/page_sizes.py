"""Refuse column chunks of Parquet files whose values do not fit in memory when they are unpacked.

A few kilobytes may unpack to gigabytes, and PyArrow unpacks a page as a whole and returns at least one row. The size
in a footer may be wrong; that in the header of a page is the most that PyArrow unpacks of it. So the headers are read
where the codec could exceed the limit, except where each is a request to a store: there, the footer is believed.
Format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift (PageHeader).
Codecs: https://github.com/google/snappy/blob/main/format_description.txt,
https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md, RFC 1951 and RFC 8878.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import CorruptFileError
from lake.core.data.formats.parquet.thrift_footer import PageHeader, page_header
from lake.core.data.formats.parquet.writer import chunk_start
from lake.core.data.formats.unpacked_sizes import MOST_RATIO, most_bytes, refuse_large
from lake.core.io.objects.large_file import LargeFile

# The most bytes that a codec unpacks from one byte; Zstandard repeats a byte 128 Ki times in four bytes. Others have
# no known limit.
_MOST_EXPANSION = {
    "UNCOMPRESSED": 1,
    "SNAPPY": 22,
    "LZ4": 256,
    "LZ4_RAW": 256,
    "GZIP": 1032,
    "ZSTD": 32768,
}
# Of a page's header; the statistics of long values make it longer.
_HEADER_BYTES, _MAX_HEADER_BYTES = 256, 16 * 1024 * 1024
_MOST_PAGES = 1_000_000
# The type of a dictionary's page.
_DICTIONARY = 2
# Of the length before each text, in bytes.
_LENGTH = 4
# The size of a dictionary whose entries are looked for, and the names of the codecs in PyArrow.
_SEARCHED = 4 * 1024 * 1024
_SEARCHED_CODECS = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd"}


def refuse_large_pages(
    parquet: Any, source: Any, path: str, group: int, columns: Sequence[int]
) -> None:
    """Refuse a row group with a page, or with rows, of few bytes that unpack above the limit.

    Args:
        parquet: the open `pyarrow.parquet.ParquetFile`.
        source: the file that it was opened on.
        path: the file's name, for errors.
        group: the row group's index.
        columns: indexes of the Parquet columns to read.

    Raises:
        RefusedError: a page, or an average row of a column, is too large when it is unpacked; see `refuse_large`.
        CorruptFileError: the header of a page cannot be read.
        InvalidRequestError: the limit is not a size.
    """
    limit = most_bytes()
    stored = parquet.metadata.row_group(group)
    for index in columns:
        chunk = stored.column(index)
        rows = max(stored.num_rows, 1)
        if chunk.total_uncompressed_size > limit:
            refuse_large_values(path, chunk, chunk.total_uncompressed_size // rows)
        elif _expansion(chunk) <= MOST_RATIO or not may_exceed(source, chunk, path, limit):
            continue
        total = 0
        for unpacked, packed in _page_sizes(source, chunk, path):
            refuse_large_values(path, chunk, unpacked, packed)
            total += unpacked
        refuse_large_values(path, chunk, total // rows)


def may_exceed(source: Any, chunk: Any, path: str, limit: float) -> bool:
    """Whether a column chunk, whose headers can be read, may unpack to more bytes than a limit."""
    return bool(
        chunk.total_compressed_size * _expansion(chunk) > limit
        and _has_headers(source, chunk, path)
    )


def _has_headers(source: Any, chunk: Any, path: str) -> bool:
    """Whether the headers of a chunk's pages can be read without a request to a store."""
    if isinstance(source, LargeFile):
        start = chunk_start(chunk)
        return source.holds(start, start + chunk.total_compressed_size)
    # Small files of a store are in memory.
    return isinstance(source, pa.BufferReader) or locations.parse(path).is_local


def _expansion(chunk: Any) -> float:
    return _MOST_EXPANSION.get(chunk.compression, float("inf"))


def unpacked_size(source: Any, chunk: Any, path: str) -> int:
    """Return the bytes to which the pages of a column chunk unpack, by their headers.

    Args:
        source: the file.
        chunk: PyArrow's description of the chunk.
        path: the file's name, for errors.

    Raises:
        CorruptFileError: the header of a page cannot be read.
    """
    return sum(unpacked for unpacked, _ in _page_sizes(source, chunk, path))


def dictionary_size(source: Any, chunk: Any, path: str) -> int | None:
    """Return the bytes to which the dictionary of a column chunk unpacks; None if that is not known.

    No entry of the dictionary is larger.

    Raises:
        CorruptFileError: the header of the page cannot be read.
    """
    header = _dictionary(source, chunk, path)
    return None if header is None else header.unpacked


def _dictionary(source: Any, chunk: Any, path: str) -> PageHeader | None:
    """Return the header of a chunk's dictionary; None if there is none, or if reading it takes a request."""
    if not (chunk.has_dictionary_page and _has_headers(source, chunk, path)):
        return None
    header = _header(source, chunk_start(chunk), path)
    return header if header.kind == _DICTIONARY else None


def short_entries(source: Any, chunk: Any, path: str) -> tuple[int, int] | None:
    """Return the shortest and the longest entry of a dictionary of texts, in bytes; None if that takes longer.

    Arrow enters each text into a table of hashes, which takes longer than to read the column. An entry is its length,
    in four bytes, and its text. If all are shorter than 256 bytes and contain no zeros, three zeros follow exactly
    the first byte of each length; that the entries are adjacent proves it.

    Raises:
        CorruptFileError: the header of the page cannot be read.
    """
    header = _dictionary(source, chunk, path)
    if header is None or chunk.compression not in _SEARCHED_CODECS:
        return None
    size = header.unpacked
    # A page is a part of its chunk; what a header says may be wrong.
    if not (_LENGTH < size <= _SEARCHED and 0 < header.packed <= chunk.total_compressed_size):
        return None
    source.seek(chunk_start(chunk) + header.length)
    packed = source.read(header.packed)
    codec = _SEARCHED_CODECS[chunk.compression]
    try:
        unpacked = pa.decompress(packed, size, codec) if codec else packed
    except (OSError, pa.ArrowException):
        # Reading the column names the file.
        return None
    page = np.frombuffer(unpacked, np.uint8)
    zero = page == 0
    starts = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    lengths = page[starts].astype(np.int64)
    following = np.append(starts, len(page))
    if following[0] or not np.array_equal(starts + _LENGTH + lengths, following[1:]):
        return None
    return int(lengths.min()), int(lengths.max())


def refuse_large_values(path: str, chunk: Any, size: int, packed: int | None = None) -> None:
    """Refuse a part of a column chunk that must be unpacked at once.

    Args:
        path: the file's name, for errors.
        chunk: PyArrow's description of the chunk.
        size: the bytes of the part when it is unpacked.
        packed: its bytes in the file; None for those of the chunk.

    Raises:
        RefusedError: see `refuse_large`.
    """
    packed = chunk.total_compressed_size if packed is None else packed
    refuse_large(f"{path} has values in column {chunk.path_in_schema}", size, packed)


def _page_sizes(source: Any, chunk: Any, path: str) -> Iterator[tuple[int, int]]:
    """Yield the unpacked and the packed size of each page of a chunk, in bytes."""
    at = chunk_start(chunk)
    end = at + chunk.total_compressed_size
    for _ in range(_MOST_PAGES):
        if at >= end:
            return
        header = _header(source, at, path)
        yield header.unpacked, header.packed
        at += header.length + header.packed
    raise CorruptFileError(f"{path} has more than {_MOST_PAGES:,} pages in one column chunk")


def _header(source: Any, at: int, path: str) -> PageHeader:
    size = _HEADER_BYTES
    while size <= _MAX_HEADER_BYTES:
        source.seek(at)
        data = source.read(size)
        try:
            return page_header(data)
        except IndexError:
            # It continues after these bytes.
            size *= 16
    raise CorruptFileError(f"{path} has a page at byte {at} whose header cannot be read")
