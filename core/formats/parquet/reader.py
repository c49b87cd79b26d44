"""Rows out of a Parquet file: its row groups, in batches of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lake.core import locations
from lake.core.columns.column_mapping import FileColumns
from lake.core.columns.data_file import Leaves, check_count
from lake.core.columns.file_slice import FileSlice
from lake.core.columns.int96 import schema_of_file
from lake.core.columns.row_ranges import Span, spans_of
from lake.core.errors import CorruptFileError
from lake.core.formats.parquet.batch_sizes import batch_rows
from lake.core.formats.parquet.footer import batches_of_group, open_parquet
from lake.core.formats.parquet.row_groups import leaf_indexes, matching_spans, row_groups_of

_MAX_ROW_GROUPS = 100_000


class ParquetRows:
    """An open Parquet file; see `lake.core.columns.data_file.RowFile`."""

    def __init__(self, source: Any, file: FileSlice) -> None:
        # What lies behind a network is fetched in few large pieces, a row group at a time.
        remote = not locations.parse(file.path).is_local
        self._source = source
        self._parquet = open_parquet(source, file.path, pre_buffer=remote)
        check_count(file, self._parquet.metadata.num_rows)
        if self._parquet.metadata.num_row_groups > _MAX_ROW_GROUPS:
            raise CorruptFileError(f"{file.path} has too many row groups")
        self.schema = schema_of_file(self._parquet)

    def batches(
        self, columns: FileColumns, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows as the file has them, each batch with its first row's position."""
        settings = columns.settings
        spans = spans_of(row_groups_of(self._parquet.metadata), columns.file)
        if settings.row_filter is not None and len(spans) > 1:
            spans = matching_spans(self._parquet, spans, settings, columns.found)
        for span in spans:
            if leaves is None or leaves(span.start, span.rows):
                yield from self._of_span(span, columns)

    def _of_span(self, span: Span, columns: FileColumns) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows of a row group, exactly as many as its footer promises."""
        names = columns.names
        places = leaf_indexes(self._parquet, names)
        most_bytes = columns.settings.batch_bytes
        size = batch_rows(self._parquet, self._source, span.piece, places, most_bytes)
        position, end = span.start - span.skip, span.start + span.rows
        for batch in batches_of_group(self._parquet, columns.file.path, span.piece, names, size):
            skip = max(0, span.start - position)
            rows = batch.slice(skip, max(0, end - position - skip))
            if rows.num_rows:
                yield position + skip, rows
            position += batch.num_rows
            if position >= end:
                return
        raise CorruptFileError(
            f"{columns.file.path} lacks {end - position} rows that its footer promises"
        )
