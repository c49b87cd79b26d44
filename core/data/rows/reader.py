"""Read the live rows of data files in bounded batches.

This is the interface for the other packages; `lake.core.data.columns.column_mapping` describes how columns are
matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.arrow import Int64s, Mask
from lake.core.base.errors import LakeError
from lake.core.data.columns.column_mapping import ColumnMapping
from lake.core.data.columns.data_file import RowFile
from lake.core.data.columns.file_slice import BATCH_BYTES, FileSlice, ReadSettings, slices_of
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.rows.file_formats import open_rows
from lake.core.data.rows.prefetch import AHEAD_BYTES, prefetch
from lake.core.io.storage.storage import Storage
from lake.core.spec.expressions.filters import row_mask
from lake.core.spec.types.arrow_schema import struct_field_ids

__all__ = [
    "AHEAD_BYTES",
    "BATCH_BYTES",
    "FileDeletes",
    "FileSlice",
    "ReadSettings",
    "RowDeletes",
    "opened",
    "prefetch",
    "present_columns",
    "read_batches",
    "read_keys",
    "read_positions",
    "slices_of",
]


class FileDeletes(Protocol):
    """The deletes of one data file."""

    @property
    def key_ids(self) -> Sequence[int]:
        """The ids of the columns that `keep` needs."""

    def keep(self, start: int, rows: int, keys: pa.RecordBatch) -> Mask | None:
        """Return which rows are not deleted; None for all.

        Args:
            start: the position of the first row in the file.
            rows: the number of rows.
            keys: the columns of `key_ids`, in that order.
        """

    def leaves(self, start: int, rows: int) -> bool:
        """Whether `keep` may keep a row of a range; if not, the range is not read."""


class RowDeletes(Protocol):
    """The deletes of the files that a task reads."""

    def of(self, file: FileSlice) -> FileDeletes | None:
        """Return the deletes of a file, or None."""


def read_batches(
    storage: Storage, file: FileSlice, settings: ReadSettings, deletes: RowDeletes | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a file's live rows with exactly the projection's schema.

    Args:
        storage: the storage of the file.
        file: the slice to read.
        settings: how to read it.
        deletes: the settings' delete files, loaded by `lake.core.data.deletes.apply`, or None.

    Raises:
        CorruptFileError: the file is not valid, or does not match the table's metadata.
        RefusedError: its format, or a feature of it, is not supported.
    """
    for _, batch in _read(storage, file, settings, deletes, with_positions=False):
        yield batch


def read_positions(
    storage: Storage, file: FileSlice, settings: ReadSettings, deletes: RowDeletes | None = None
) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Yield rows as `read_batches` does, each batch with the positions of its rows in the file."""
    for positions, batch in _read(storage, file, settings, deletes, with_positions=True):
        if positions is not None:
            yield positions, batch


def present_columns(storage: Storage, file: FileSlice, settings: ReadSettings) -> frozenset[int]:
    """Return the ids of the projection's columns, with their nested fields, that a file contains."""
    with opened(storage, file) as rows:
        columns = ColumnMapping.of(rows.schema, file, settings, ())
        return struct_field_ids(item for item in columns.found.values() if item is not None)


def read_keys(
    storage: Storage, file: FileSlice, settings: ReadSettings, ids: Sequence[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the columns that equality deletes compare, for all rows of a slice, including deleted ones.

    Args:
        storage: the storage of the file.
        file: the slice to read.
        settings: how to read it; projection, filter and deletes are ignored.
        ids: the ids of the columns, in order; the ids are the names of the result's columns.

    Returns:
        Batches, each with the position of its first row in the file.
    """
    plain = replace(settings, projection=Schema(), row_filter=None, deletes=(), keys=None)
    with opened(storage, file) as rows:
        columns = ColumnMapping.of(rows.schema, file, plain, ids)
        for start, raw in rows.batches(columns):
            yield start, columns.keys_of(raw)


def _read(
    storage: Storage,
    file: FileSlice,
    settings: ReadSettings,
    deletes: RowDeletes | None,
    *,
    with_positions: bool,
) -> Iterator[tuple[Int64s | None, pa.RecordBatch]]:
    if settings.deletes and deletes is None:
        raise ValueError("the settings have delete files, but no deletes were given")
    own = None if deletes is None else deletes.of(file)
    with opened(storage, file) as rows:
        columns = ColumnMapping.of(rows.schema, file, settings, own.key_ids if own else ())
        found = _shaped(rows, columns, own, with_positions=with_positions)
        if settings.keys is not None:
            found = settings.keys.tested(found, Schema(*columns.wanted))
        for positions, batch in found:
            yield positions, columns.select(batch)


def _shaped(
    rows: RowFile, columns: ColumnMapping, own: FileDeletes | None, *, with_positions: bool
) -> Iterator[tuple[Int64s | None, pa.RecordBatch]]:
    """Yield the live rows of a file that match the filter, with the columns that are read."""
    for start, raw in rows.batches(columns, None if own is None else own.leaves):
        keep = None if own is None else own.keep(start, raw.num_rows, columns.keys_of(raw))
        positions = None
        if with_positions or columns.need_positions:
            positions = np.arange(start, start + raw.num_rows, dtype=np.int64)
        positions, batch = _live_rows(raw, positions, keep, columns)
        if batch.num_rows:
            yield positions, batch


def _live_rows(
    raw: pa.RecordBatch, positions: Int64s | None, keep: Mask | None, columns: ColumnMapping
) -> tuple[Int64s | None, pa.RecordBatch]:
    """Return the rows of a batch that are kept and match the filter, with their positions."""
    if keep is not None:
        raw = raw.filter(pa.array(keep))
        positions = None if positions is None else positions[keep]
    batch = columns.shape(raw, positions)
    condition, schema = columns.settings.row_filter, columns.settings.schema
    if condition is not None:
        mask = row_mask(condition, batch, schema)
        batch = batch.filter(mask)
        if positions is not None:
            positions = positions[mask.to_numpy(zero_copy_only=False)]
    return positions, batch


@contextmanager
def opened(storage: Storage, file: FileSlice) -> Iterator[RowFile]:
    """Open a data file; errors of PyArrow about it become errors that name it."""
    with storage.open_input(file.path, size=file.size_bytes) as source, _corrupt(file.path):
        yield open_rows(source, file)


@dataclass(slots=True)
class _corrupt:  # noqa: N801 - reads as a statement
    """Converts PyArrow's errors about corrupt files to errors that name the file."""

    path: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, LakeError):
            return
        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError | OverflowError):
            raise reading_error(error, self.path) from error
