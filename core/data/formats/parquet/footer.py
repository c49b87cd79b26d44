"""Open Parquet files for reading, and check their footers.

Format: https://parquet.apache.org/docs/file-format/ and https://parquet.apache.org/docs/file-format/data-pages/encryption/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.int96 import INT96_UNIT
from lake.core.data.columns.reading_errors import unsupported_file
from lake.core.data.formats.parquet.chunk_checks import ChunkChecks

_MAX_FOOTER_BYTES = 256 * 1024 * 1024
# The footer is followed by its length and four magic bytes.
_END_BYTES = 8
_MAGIC = b"PAR1"
# The bytes to fetch at once, as in PyArrow; most footers are smaller.
_FETCHED_BYTES = 64 * 1024
# A file with encrypted columns may have a readable footer, which is followed by a nonce and a tag.
_SIGNATURE_BYTES = 28


def open_parquet(source: Any, path: str, *, pre_buffer: bool = False) -> tuple[Any, ChunkChecks]:
    """Open a `pyarrow.parquet.ParquetFile` that reads INT96 in the full range of timestamps.

    Args:
        source: the file, for random access.
        path: the file's name, for errors.
        pre_buffer: fetch a row group in a few large requests.

    Returns:
        The file, and the checks that come before PyArrow describes its column chunks.

    Raises:
        CorruptFileError: its footer is larger than 256 MiB.
        RefusedError: columns are encrypted. PyArrow ends the process when it reads their metadata.
    """
    size = source.size()
    metadata, footer = _metadata(source, size, path)
    parquet = with_dictionaries(source, metadata, (), pre_buffer=pre_buffer)
    return parquet, ChunkChecks(parquet.metadata, footer, size)


def with_dictionaries(source: Any, metadata: Any, names: Sequence[str], *, pre_buffer: bool) -> Any:
    """Return a `pyarrow.parquet.ParquetFile` that reads some columns as dictionary arrays.

    Args:
        source: the file, for random access.
        metadata: its parsed footer; None to parse it.
        names: the columns, which contain texts.
        pre_buffer: fetch a row group in a few large requests.
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=list(names),
        page_checksum_verification=True,
        pre_buffer=pre_buffer,
        coerce_int96_timestamp_unit=INT96_UNIT,
    )


def batches_of_group(
    parquet: Any, path: str, group: int, names: Sequence[str] | None, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches; `check_group` was called before.

    Args:
        parquet: an open file.
        path: the file's name, for errors.
        group: the row group's index.
        names: the columns to read; None for all.
        size: the rows of a batch.

    Raises:
        RefusedError: PyArrow cannot read a column; the message names it.
    """
    if names is not None and not names:
        # PyArrow prepares batches without columns all at once, whatever the number of rows is.
        rows = parquet.metadata.row_group(group).num_rows
        for start in range(0, rows, size):
            empty = pa.Array.from_buffers(pa.struct([]), min(size, rows - start), [None])
            yield pa.RecordBatch.from_struct_array(empty)
        return

    def read(some: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
            size, row_groups=[group], columns=some, use_threads=False
        )
        return batches

    with _naming_column(parquet, path, names, lambda name: next(read([name]), None)):
        yield from read(names)


def check_group(
    parquet: Any, checks: ChunkChecks, path: str, group: int, names: Sequence[str]
) -> None:
    """Check that PyArrow can describe column chunks of a row group.

    Raises:
        RefusedError: PyArrow cannot read a column; the message names it.
        OSError, pyarrow.ArrowException: a description is not valid.
    """
    with _naming_column(parquet, path, names, lambda name: checks.group(group, [name])):
        checks.group(group, names)


@contextmanager
def _naming_column(
    parquet: Any, path: str, names: Sequence[str] | None, attempt: Callable[[str], object]
) -> Iterator[None]:
    """Name the column that PyArrow does not support, which fails when it is attempted alone."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        for name in parquet.schema_arrow.names if names is None else names:
            try:
                attempt(name)
            except pa.ArrowNotImplementedError as of_column:
                raise unsupported_file(path, f"column {name}: {of_column}") from error
        raise


def _metadata(source: Any, size: int, path: str) -> tuple[Any, memoryview]:
    """Return the parsed footer and its bytes; None if the file is not valid, so that PyArrow reports the reason."""
    end = _last_bytes(source, size, _FETCHED_BYTES)
    if len(end) < _END_BYTES or end[-len(_MAGIC) :] != _MAGIC:
        return None, memoryview(b"")
    length = int.from_bytes(end[-_END_BYTES : -len(_MAGIC)], "little")
    if length > _MAX_FOOTER_BYTES:
        raise CorruptFileError(
            f"{path} cannot be read: its footer claims {length} bytes, "
            f"but at most {_MAX_FOOTER_BYTES} are allowed"
        )
    if length + _END_BYTES > len(end):
        end = _last_bytes(source, size, length + _END_BYTES)
    metadata = pq.read_metadata(pa.BufferReader(end))
    if length - metadata.serialized_size == _SIGNATURE_BYTES:
        raise unsupported_file(path, "it has encrypted columns")
    return metadata, memoryview(end)[-_END_BYTES - length : -_END_BYTES]


def _last_bytes(source: Any, size: int, count: int) -> bytes:
    taken = min(size, count)
    source.seek(size - taken)
    found: bytes = source.read(taken)
    source.seek(0)
    return found
