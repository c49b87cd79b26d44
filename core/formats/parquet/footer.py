"""Open Parquet files for reading, and check their footers.

Format: https://parquet.apache.org/docs/file-format/ and https://parquet.apache.org/docs/file-format/data-pages/encryption/.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake.core.columns.int96 import INT96_UNIT
from lake.core.columns.reading_errors import unsupported_file
from lake.core.errors import CorruptFileError

_MAX_FOOTER_BYTES = 256 * 1024 * 1024
# The footer is followed by its length and four magic bytes.
_END_BYTES = 8
_MAGIC = b"PAR1"
# The bytes to fetch at once, as in PyArrow; most footers are smaller.
_FETCHED_BYTES = 64 * 1024
# A file with encrypted columns may have a readable footer, which is followed by a nonce and a tag.
_SIGNATURE_BYTES = 28
_PROBED_BYTES = 4096


def open_parquet(source: Any, path: str, *, pre_buffer: bool = False) -> Any:
    """Open a `pyarrow.parquet.ParquetFile` that reads INT96 in the full range of timestamps.

    Args:
        source: the file, for random access.
        path: the file's name, for errors.
        pre_buffer: fetch a row group in a few large requests.

    Raises:
        CorruptFileError: its footer is larger than 256 MiB.
        RefusedError: columns are encrypted. PyArrow ends the process when it reads their metadata.
    """
    return pq.ParquetFile(
        source,
        metadata=_metadata(source, path),
        page_checksum_verification=True,
        pre_buffer=pre_buffer,
        coerce_int96_timestamp_unit=INT96_UNIT,
    )


def batches_of_group(
    parquet: Any, path: str, group: int, names: Sequence[str] | None, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches.

    Args:
        parquet: an open file.
        path: the file's name, for errors.
        group: the row group's index.
        names: the columns to read; None for all.
        size: the rows of a batch.

    Raises:
        RefusedError: PyArrow cannot read a column; the message names it.
    """
    try:
        yield from parquet.iter_batches(size, row_groups=[group], columns=names, use_threads=False)
    except pa.ArrowNotImplementedError as error:
        for name in parquet.schema_arrow.names if names is None else names:
            try:
                next(parquet.iter_batches(size, row_groups=[group], columns=[name]), None)
            except pa.ArrowNotImplementedError as of_column:
                raise unsupported_file(path, f"column {name}: {of_column}") from error
        raise


class _NoBytes(io.RawIOBase):
    """A file of a size of which nothing can be read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, _size: int = -1) -> bytes:
        raise _ReachedRowsError


class _ReachedRowsError(Exception):
    """A reader has accepted the footer's description of a row group, and reads its first bytes."""


def check_chunks(metadata: Any, size: int) -> None:
    """Let PyArrow check a footer's description of every column chunk, without reading from the file.

    The checks are the same when chunks are described (`metadata.row_group(…).column(…)`), but there a failure ends
    the process.

    Args:
        metadata: the footer.
        size: the size of the file in bytes.

    Raises:
        OSError, pyarrow.ArrowException: a description is not valid, or has a feature that PyArrow does not support.
    """
    source = pa.PythonFile(_NoBytes(size), mode="r")
    parquet = pq.ParquetFile(source, metadata=metadata, buffer_size=_PROBED_BYTES)
    for group in range(metadata.num_row_groups):
        with suppress(_ReachedRowsError):
            next(parquet.iter_batches(1, row_groups=[group], use_threads=False), None)
        described = metadata.row_group(group)
        if described.num_columns != metadata.num_columns:
            raise pa.ArrowInvalid(f"row group {group} has {described.num_columns} columns")
        for position in range(metadata.num_columns):
            # PyArrow checks this when it decodes statistics only.
            found = described.column(position).physical_type
            if found != metadata.schema.column(position).physical_type:
                raise pa.ArrowInvalid(f"column {position} has values of the type {found}")


def _metadata(source: Any, path: str) -> Any:
    """Return the parsed footer; None if the file is not valid, so that PyArrow reports the reason."""
    end = _last_bytes(source, _FETCHED_BYTES)
    if len(end) < _END_BYTES or end[-len(_MAGIC) :] != _MAGIC:
        return None
    length = int.from_bytes(end[-_END_BYTES : -len(_MAGIC)], "little")
    if length > _MAX_FOOTER_BYTES:
        raise CorruptFileError(
            f"{path} cannot be read: its footer claims {length} bytes, "
            f"but at most {_MAX_FOOTER_BYTES} are allowed"
        )
    if length + _END_BYTES > len(end):
        end = _last_bytes(source, length + _END_BYTES)
    metadata = pq.read_metadata(pa.BufferReader(end))
    if length - metadata.serialized_size == _SIGNATURE_BYTES:
        raise unsupported_file(path, "it has encrypted columns")
    return metadata


def _last_bytes(source: Any, count: int) -> bytes:
    size = source.size()
    taken = min(size, count)
    source.seek(size - taken)
    found: bytes = source.read(taken)
    source.seek(0)
    return found
