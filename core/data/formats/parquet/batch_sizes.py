"""Compute the number of rows of a Parquet row group for a batch of bounded size.

The sizes in a footer are those of encoded values: runs and dictionaries may expand a thousandfold, so a few hundred
bytes can contain thousands of rows of a mebibyte each. The size of numbers is estimated by their width, that of
texts by the longest entry of their dictionary. Source: https://parquet.apache.org/docs/file-format/data-pages/encodings/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.core.data.formats.parquet.page_sizes import (
    dictionary_size,
    may_exceed,
    refuse_large_values,
    short_entries,
    unpacked_size,
)

_MOST_ROWS = 128 * 1024
# The factor by which a batch may exceed its target if all rows have the maximum size.
_EXPANSION = 4
# Encodings that repeat prefixes without a dictionary.
_PREFIX_ROWS = 1024
# Of a text in a batch.
_OFFSET_BYTES = 4
# Enough for a page header, without reading the rest of the column.
_PROBE_BUFFER = 64 * 1024
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_DICTIONARY = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}


def batch_rows(
    parquet: Any,
    source: Any,
    group: int,
    columns: Sequence[int],
    batch_bytes: int,
    most_bytes: int | None = None,
    *,
    path: str,
) -> int:
    """Return the number of rows of a row group to read at once.

    Args:
        parquet: the open `pyarrow.parquet.ParquetFile`.
        source: the file that it was opened on.
        group: the row group's index.
        columns: indexes of the Parquet columns to read.
        batch_bytes: the target size of a batch.
        most_bytes: the size of a batch whose rows all have the maximum size; None for four times the target size.
        path: the file's name, for errors.

    Raises:
        RefusedError: the rows repeat the entries of a dictionary so often that one does not fit in memory.
        CorruptFileError: the header of a page cannot be read.
    """
    stored = parquet.metadata.row_group(group)
    count = max(stored.num_rows, 1)
    chunks = {index: stored.column(index) for index in columns}
    expected = sum(_expected_bytes(parquet, index, chunk) for index, chunk in chunks.items())
    rows = _limited(min(count, _MOST_ROWS), batch_bytes, expected / count)
    most = _EXPANSION * batch_bytes if most_bytes is None else most_bytes
    doubtful = {
        index: chunk
        for index, chunk in chunks.items()
        if _is_text(parquet, index, chunk)
        and not set(chunk.encodings) <= _PLAIN
        and _exceeds(source, chunk, path, most / (rows * max(chunk.num_values / count, 1)))
    }
    with_dictionary = [index for index, chunk in doubtful.items() if is_by_dictionary(chunk)]
    if len(with_dictionary) < len(doubtful):
        rows = min(rows, _PREFIX_ROWS)
    largest = 0.0
    for index, lengths in _entry_lengths(parquet, source, group, with_dictionary, path):
        if lengths is None:
            return min(rows, _PREFIX_ROWS)
        shortest, longest = lengths
        largest += (longest + _OFFSET_BYTES) * max(chunks[index].num_values / count, 1)
        refuse_large_values(path, chunks[index], int(shortest * _texts(chunks[index]) / count))
    return _limited(rows, most, largest)


def is_by_dictionary(chunk: Any) -> bool:
    """Whether the values of a column chunk are the entries of a dictionary, or stored in full."""
    return bool(chunk.has_dictionary_page and set(chunk.encodings) <= _PLAIN | _DICTIONARY)


def _limited(rows: int, most_bytes: int, bytes_per_row: float) -> int:
    return max(1, min(rows, int(most_bytes / max(bytes_per_row, 1))))


def _exceeds(source: Any, chunk: Any, path: str, most: float) -> bool:
    """Whether a value may be longer than a number of bytes: it cannot be longer than its dictionary or its column."""
    if is_by_dictionary(chunk):
        entries = dictionary_size(source, chunk, path)
        if entries is not None and entries <= most:
            return False
    size = max(chunk.total_uncompressed_size, chunk.total_compressed_size)
    return bool(size > most) or (
        may_exceed(source, chunk, path, most) and unpacked_size(source, chunk, path) > most
    )


def _expected_bytes(parquet: Any, index: int, chunk: Any) -> int:
    width = _WIDTHS.get(chunk.physical_type)
    if width is None:
        width = max(parquet.schema.column(index).length, 4)
    return max(int(chunk.total_uncompressed_size), int(chunk.num_values) * width)


def _texts(chunk: Any) -> int:
    """Return the least number of texts in a column chunk; lists without elements count as values."""
    found = chunk.statistics
    return chunk.num_values - found.null_count if found is not None and found.has_null_count else 0


def _is_text(parquet: Any, index: int, chunk: Any) -> bool:
    is_bytes = chunk.physical_type == "BYTE_ARRAY"
    return bool(is_bytes and parquet.schema.column(index).logical_type.type != "DECIMAL")


def _entry_lengths(
    parquet: Any, source: Any, group: int, indexes: Sequence[int], path: str
) -> Iterator[tuple[int, tuple[int, int] | None]]:
    """Yield each column with the shortest and the longest entry of its dictionary in bytes; None if not known."""
    stored = parquet.metadata.row_group(group)
    paths = {}
    for index in indexes:
        if lengths := short_entries(source, stored.column(index), path):
            yield index, lengths
        else:
            paths[index] = parquet.schema.column(index).path
    flat = [index for index, path in paths.items() if "." not in path]
    # To open a file takes longer than to read a dictionary. The leaves of a nested column are one column of a batch.
    for together in (flat, *([index] for index in paths if index not in flat)):
        if not together:
            continue
        names = [paths[index] for index in together]
        size = max(stored.column(index).total_compressed_size for index in together)
        probe = pq.ParquetFile(
            source,
            metadata=parquet.metadata,
            read_dictionary=names,
            # A small column is read at once in less time.
            buffer_size=_PROBE_BUFFER if size > _PROBE_BUFFER else 0,
            page_checksum_verification=True,
            pre_buffer=False,
        )
        batches = probe.iter_batches(1, row_groups=[group], columns=names, use_threads=False)
        first = next(batches, None)
        columns = [] if first is None else first.columns
        # Two columns may have one name; a batch then contains more columns, and none is known.
        known = columns if len(columns) == len(together) else [None] * len(together)
        # A batch's columns are in the order of the file.
        for index, column in zip(sorted(together), known, strict=True):
            yield index, None if column is None else _lengths(column)


def _lengths(column: pa.Array) -> tuple[int, int] | None:
    found = [
        pc.min_max(pc.binary_length(item.dictionary)).as_py() for item in _dictionaries(column)
    ]
    if not found:
        return None
    return min(item["min"] or 0 for item in found), max(item["max"] or 0 for item in found)


def _dictionaries(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        yield from _dictionaries(column.storage)
    elif pa.types.is_dictionary(kind):
        yield column
    elif pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            yield from _dictionaries(column.field(position))
    elif pa.types.is_map(kind):
        yield from _dictionaries(column.keys)
        yield from _dictionaries(column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _dictionaries(column.values)
