"""Live data files of a snapshot in the form in which files are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lake.core.base.arrow import Int64s
from lake.core.data.columns.file_slice import FileSlice, slices_of
from lake.core.table.snapshots.live_files import LiveFiles
from lake.core.table.snapshots.pruning import FILTER_COLUMNS

# The columns of entries that slices, and filters of files, need.
SLICE_COLUMNS = (
    "sequence_number",
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "first_row_id",
)
# Those that also divide the files by whether all rows match a filter.
SPLIT_COLUMNS = (*SLICE_COLUMNS, *FILTER_COLUMNS)
_TASK_ROWS = 4_000_000
_TASK_FILES = 500


def all_slices(found: LiveFiles) -> list[FileSlice]:
    """Return all data files in the order of their numbers."""
    specs = found.table.metadata.specs()
    return [
        item
        for spec_id, entries in found.by_spec.items()
        for item in slices_of(_needed(entries), spec=specs[spec_id], schema=found.schema)
    ]


def slices_at(found: LiveFiles, numbers: Int64s) -> list[FileSlice]:
    """Return data files by their numbers, in any order."""
    specs = found.table.metadata.specs()
    files: list[Any] = [None] * len(numbers)
    for spec_id, own, rows in found.places(numbers):
        chosen = _needed(found.by_spec[spec_id]).take(pa.array(rows))
        of_spec = slices_of(chosen, spec=specs[spec_id], schema=found.schema)
        for place, file in zip(own.tolist(), of_spec, strict=True):
            files[place] = file
    return files


def _needed(entries: pa.Table) -> pa.Table:
    return entries.select([name for name in SLICE_COLUMNS if name in entries.column_names])


def parts_by_rows(files: Sequence[FileSlice], parallelism: int) -> Iterator[slice]:
    """Yield adjacent data files, with about as many rows for each of the tasks that run at once."""
    most = min(_TASK_ROWS, -(-sum(file.record_count for file in files) // parallelism))
    start = taken = 0
    for place, file in enumerate(files):
        if place > start and (taken + file.record_count > most or place - start >= _TASK_FILES):
            yield slice(start, place)
            start, taken = place, 0
        taken += file.record_count
    yield slice(start, len(files))
