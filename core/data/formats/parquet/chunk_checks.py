"""Check what a Parquet footer says about column chunks before PyArrow describes them in Python.

PyArrow's `RowGroupMetaData.column` and `ColumnChunkMetaData.statistics` end the process if the footer is not valid.
The same C++ code returns errors when rows are read, so a row group is first read from a closed file. Minima
and maxima are not decoded there; `lake.core.data.formats.parquet.thrift_footer` checks their lengths.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake.core.data.formats.parquet.thrift_footer import BoundNotes, bound_notes

# PyArrow then creates the readers of all columns before it reads a byte.
_BUFFER_BYTES = 4096
# Widths of encoded minima and maxima. A BYTE_ARRAY has any length.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# PyArrow's error when a file is read that was closed.
_IS_CLOSED = "operation on closed Python file"
_FIXED = "FIXED_LEN_BYTE_ARRAY"
# The footer is followed by its length and four magic bytes.
_END_BYTES = 8


class ChunkChecks:
    """Checks of the column chunks of one file.

    Args:
        metadata: the parsed footer.
        footer: its bytes; more may follow.
        size: the size of the file in bytes.
    """

    def __init__(self, metadata: Any, footer: memoryview, size: int) -> None:
        self._metadata = metadata
        self.footer = footer
        self._size = size

    @property
    def footer_start(self) -> int:
        """The position of the footer in the file."""
        return self._size - len(self.footer) - _END_BYTES

    def group(self, index: int, names: Sequence[str] | None = None) -> None:
        """Check that chunks of a row group can be described, except for their statistics.

        Args:
            index: the row group's index.
            names: the columns, or paths of leaves; None for all.

        Raises:
            OSError, pyarrow.ArrowException: a description is not valid, or has a feature that PyArrow does not
                support.
        """
        found, expected = self._metadata.row_group(index).num_columns, self._metadata.num_columns
        if found != expected:
            raise pa.ArrowInvalid(f"row group {index} has {found} columns instead of {expected}")
        if names is None or names:
            self._describe(index, names)

    def start(self, index: int) -> None:
        """Check that the first chunk of a row group can be described. Raises as `group` does."""
        if self._metadata.num_columns == 0:
            raise pa.ArrowInvalid("it has no columns")
        self.group(index, [self._metadata.schema.column(0).path])

    def all_groups(self) -> BoundNotes:
        """Check all chunks and the statistics of all columns. Returns and raises as `group` and `statistics` do."""
        for index in range(self._metadata.num_row_groups):
            self.group(index)
        positions, groups = self._metadata.num_columns, self._metadata.num_row_groups
        return self.statistics(range(positions), range(groups))

    def statistics(self, positions: Sequence[int], groups: Sequence[int]) -> BoundNotes:
        """Check that the statistics of column chunks can be decoded.

        Args:
            positions: the columns' positions.
            groups: the row groups, for which `group` was called with these columns.

        Returns:
            What the footer says about the minima and maxima of the columns, in all row groups.

        Raises:
            pyarrow.ArrowInvalid: values have another type than in the schema, or a minimum or maximum is too short.
        """
        widths = {position: self._width(position) for position in positions}
        for index in groups:
            group = self._metadata.row_group(index)
            for position in positions:
                found = group.column(position).physical_type
                if found != self._metadata.schema.column(position).physical_type:
                    raise pa.ArrowInvalid(f"column {position} has values of the type {found}")
        return bound_notes(bytes(self.footer), widths)  # check: widths-of-statistics

    def _width(self, position: int) -> int:
        column = self._metadata.schema.column(position)
        kind = column.physical_type
        return int(column.length) if kind == _FIXED else _WIDTHS.get(kind, 0)

    def _describe(self, index: int, names: Sequence[str] | None) -> None:
        """Let PyArrow create the readers of a row group's columns; then they fail to read the closed file."""
        batches = self._closed.iter_batches(1, row_groups=[index], columns=names, use_threads=False)
        try:
            next(batches, None)
        except pa.ArrowInvalid as error:
            if str(error) != _IS_CLOSED:
                raise

    @cached_property
    def _closed(self) -> Any:
        source = pa.PythonFile(_NoBytes(self._size), mode="r")
        parquet = pq.ParquetFile(
            source, metadata=self._metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False
        )
        source.close()
        return parquet


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
