"""Read rows from a Parquet file by row groups, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.column_mapping import ColumnMapping
from lake.core.data.columns.data_file import Leaves, check_count
from lake.core.data.columns.file_slice import FileSlice
from lake.core.data.columns.int96 import schema_of_file
from lake.core.data.columns.row_ranges import RowRange, row_ranges
from lake.core.data.formats.parquet.batch_sizes import batch_rows, is_by_dictionary
from lake.core.data.formats.parquet.copying.model import Model
from lake.core.data.formats.parquet.copying.source import CopySource
from lake.core.data.formats.parquet.footer import (
    batches_of_group,
    check_group,
    open_parquet,
    with_dictionaries,
)
from lake.core.data.formats.parquet.page_sizes import dictionary_size, refuse_large_pages
from lake.core.data.formats.parquet.row_groups import (
    chunk_ranges,
    leaf_indexes,
    matching_ranges,
    row_groups_of,
)
from lake.core.io.objects.large_file import LargeFile

_MAX_ROW_GROUPS = 100_000
# The bytes of a dictionary that is not kept: it may have most of the values.
_LARGE = 64 * 1024


class ParquetRows:
    """An open Parquet file; see `lake.core.data.columns.data_file.RowFile`."""

    def __init__(self, source: Any, file: FileSlice) -> None:
        self._source = source
        # Remote files are fetched one row group at a time, in a few large requests.
        self._by_arrow = not (isinstance(source, LargeFile) or locations.parse(file.path).is_local)
        self._parquet, self._checks = open_parquet(source, file.path, pre_buffer=self._by_arrow)
        check_count(file, self._parquet.metadata.num_rows)
        if self._parquet.metadata.num_row_groups > _MAX_ROW_GROUPS:
            raise CorruptFileError(f"{file.path} has too many row groups")
        self.schema = schema_of_file(self._parquet)

    def batches(
        self, columns: ColumnMapping, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows with the file's types, each batch with the position of its first row."""
        settings = columns.settings
        ranges = row_ranges(self._pieces(columns.file), columns.file)
        chooses = settings.row_filter is not None or settings.keys is not None
        if chooses and len(ranges) > 1:
            ranges = matching_ranges(self._parquet, self._checks, ranges, settings, columns.found)
        ranges = [one for one in ranges if leaves is None or leaves(one.start, one.rows)]
        for row_range, following in zip_longest(ranges, ranges[1:]):
            yield from self._of_range(row_range, columns, following)

    def copy_source(self, model: Model) -> CopySource:
        """Return the file's row groups for copying; raises as `CopySource` does."""
        return CopySource(self._source, self._checks, model)

    def rows_of_groups(self, path: str) -> list[int]:
        """Return the number of rows of each row group.

        Raises:
            CorruptFileError: their sum is not that of the file.
        """
        metadata = self._parquet.metadata
        rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:  # check: rows-of-row-groups
            raise CorruptFileError(
                f"{path} has {metadata.num_rows} rows, but its row groups have {sum(rows)}"
            )
        return rows

    def _pieces(self, file: FileSlice) -> list[tuple[int, int]]:
        """Return the offset of the first byte and the number of rows of each row group."""
        metadata, rows = self._parquet.metadata, self.rows_of_groups(file.path)
        if file.start == 0 and file.length is None:
            return [(0, count) for count in rows]
        return list(row_groups_of(metadata, self._checks))

    def _of_range(
        self, row_range: RowRange, columns: ColumnMapping, following: RowRange | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows of a row group, and check their number against the footer; the following one may be fetched."""
        names = columns.names
        path, group = columns.file.path, row_range.piece
        check_group(self._parquet, self._checks, path, group, names)  # check: column-chunks
        leaves = leaf_indexes(self._parquet, names)
        if isinstance(self._source, LargeFile):
            later = []
            if following is not None:
                check_group(self._parquet, self._checks, path, following.piece, names)
                later = chunk_ranges(self._parquet, following.piece, leaves)
            self._source.fetch(chunk_ranges(self._parquet, group, leaves), later)
        most_bytes = columns.settings.batch_bytes
        refuse_large_pages(self._parquet, self._source, path, group, leaves)
        size = batch_rows(self._parquet, self._source, group, leaves, most_bytes, path=path)
        position, end = row_range.start - row_range.skip, row_range.start + row_range.rows
        parquet = self._parquet
        if kept := self._kept_dictionaries(columns, group):
            metadata = parquet.metadata
            parquet = with_dictionaries(self._source, metadata, kept, pre_buffer=self._by_arrow)
        for batch in batches_of_group(parquet, path, group, names, size):
            skip = max(0, row_range.start - position)
            rows = batch.slice(skip, max(0, end - position - skip))
            if rows.num_rows:
                yield position + skip, rows
            position += batch.num_rows
            if position >= end:
                return
        raise CorruptFileError(f"{path} has {end - position} fewer rows than its footer says")

    def _kept_dictionaries(self, columns: ColumnMapping, group: int) -> list[str]:
        """Return the columns of a row group that are read as dictionary arrays."""
        found = [columns.found.get(number) for number in columns.settings.dictionaries]
        # The path of a nested field may be the name of another column.
        names = [
            item.name
            for item in found
            if item is not None and item.type == pa.string() and "." not in item.name
        ]
        stored, path, kept = self._parquet.metadata.row_group(group), columns.file.path, []
        for chunk in map(stored.column, leaf_indexes(self._parquet, names) if names else ()):
            name = chunk.path_in_schema
            size = dictionary_size(self._source, chunk, path) if is_by_dictionary(chunk) else None
            if name in names and size is not None and size < _LARGE:
                kept.append(name)
        return kept
