"""Refuse column chunks of Parquet files whose values do not fit in memory when they are unpacked.

A few kilobytes may unpack to gigabytes, and PyArrow unpacks a page as a whole and returns at least one row. The
headers of pages are read only where a chunk is larger than the limit.
Format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift (PageHeader).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from lake.core.errors import CorruptFileError, InvalidRequestError, RefusedError
from lake.core.formats.parquet.thrift_footer import page_header
from lake.core.units import format_size, parse_size

LIMIT = "LAKE_MAX_PAGE_SIZE"
_DEFAULT_LIMIT = 256 * 1024 * 1024
# Some writers put thousands of long values into one page: what has a similar size in the file is always read.
_RATIO = 100
# Of a page's header; the statistics of long values make it longer.
_HEADER_BYTES, _MAX_HEADER_BYTES = 4096, 16 * 1024 * 1024


def refuse_large_pages(
    parquet: Any, source: Any, path: str, group: int, columns: Sequence[int]
) -> None:
    """Refuse a row group with a page, or with rows, of few bytes that unpack above the limit of the variable `LIMIT`.

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
        size = chunk.total_uncompressed_size
        if size <= limit:
            continue
        refuse_large(path, chunk, size // max(stored.num_rows, 1))
        for unpacked, packed in _page_sizes(source, chunk, path):
            refuse_large(path, chunk, unpacked, packed)


def refuse_large(path: str, chunk: Any, size: int, packed: int | None = None) -> None:
    """Refuse a part of a column chunk that must be unpacked at once.

    Args:
        path: the file's name, for errors.
        chunk: PyArrow's description of the chunk.
        size: the bytes of the part when it is unpacked.
        packed: its bytes in the file; None for those of the chunk.

    Raises:
        RefusedError: these are more than the limit, and more than 100 times the bytes in the file.
    """
    packed = chunk.total_compressed_size if packed is None else packed
    limit = most_bytes()
    if size > limit and size > _RATIO * packed:
        raise RefusedError(
            f"{path} has values in column {chunk.path_in_schema} that unpack to {format_size(size)} at once, "
            f"from {format_size(packed)}: the limit is {format_size(limit)}",
            hint=f"if the file is trusted and there is enough memory, raise the limit: {LIMIT}=4GB",
        )


def most_bytes() -> int:
    """Return the limit of the variable `LIMIT` in bytes.

    Raises:
        InvalidRequestError: it is not a size.
    """
    text = os.environ.get(LIMIT)
    try:
        return parse_size(text) if text else _DEFAULT_LIMIT
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{LIMIT} is {error.message}", hint=error.hint) from error


def _page_sizes(source: Any, chunk: Any, path: str) -> Iterator[tuple[int, int]]:
    """Yield the unpacked and the packed size of each page of a chunk, in bytes."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    while at < end:
        length, unpacked, packed = _header(source, at, path)
        yield unpacked, packed
        at += length + max(packed, 0)


def _header(source: Any, at: int, path: str) -> tuple[int, int, int]:
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
