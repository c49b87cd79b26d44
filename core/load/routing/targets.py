"""One table of a load into many tables: its schema, its rows in temporary files, and how its load ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from lake.core.base.errors import LakeError, StorageError
from lake.core.data.columns.defaults import without_write_defaults
from lake.core.data.keys.extraction import columns_of, cut
from lake.core.data.sources.acceptance import NeededColumns, RowCheck
from lake.core.load.upsert.source_tasks import key_check, sequence_check
from lake.core.spec.types.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

_FILE_BYTES = 128 * 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class ChangeColumns(NamedTuple):
    """Columns of a change log.

    Args:
        kind: contains the row kind; the table does not have it.
        required: the table's required columns: a delete may leave them empty.
    """

    kind: str
    required: Sequence[str]


class KeyColumns(NamedTuple):
    """Columns by which rows are compared with those of a table: a missing value is not replaced by a default.

    Args:
        key: must have a value in each row.
        sequence: orders the rows of a key; None for no such column.
    """

    key: Sequence[str] = ()
    sequence: str | None = None


NO_KEY = KeyColumns()


class Target:
    """A table that receives rows.

    Args:
        identifier: the table's name.
        number: a number that no other table of the run has.
        table: the table; None if it will be created.
        schema: the source's columns as the table's rows have them; empty if there is an error.
        key: the columns by which rows are compared.
        error: why the table cannot be loaded; None if that is not known.
        changes: the columns of a change log that are treated in another way; None for rows that are added.
    """

    def __init__(
        self,
        identifier: str,
        number: int,
        table: Table | None = None,
        schema: Schema | None = None,
        key: KeyColumns = NO_KEY,
        error: LakeError | None = None,
        changes: ChangeColumns | None = None,
    ) -> None:
        self.identifier = identifier
        self._number = number
        self.table = table
        self.error = error
        # The columns that each row must have; None if it may lack any.
        self.needed: NeededColumns | None = None
        self._changes = changes
        ids = _ids(schema, key.key) if schema else []
        by = _ids(schema, [key.sequence]) if schema and key.sequence else []
        self.schema = without_write_defaults(schema, [*ids, *by]) if schema else Schema()
        self.checks: Sequence[RowCheck] = [_key_check(self.schema, ids)] if ids else []
        if by and key.sequence:
            self.checks = [*self.checks, sequence_check(key.sequence)]
        self.rows = 0
        self.files: list[str] = []
        self._arrow = _file_schema(self.schema)
        self._filled = set(changes.required) if changes else set()
        if by and key.sequence:
            # The load of the table needs the column, also if no row has a value.
            self._filled.add(key.sequence)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch, folder: str) -> None:
        """Add rows; they are written to files of a folder in larger parts.

        Raises:
            StorageError: the folder cannot be written.
        """
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count < len(column):
                self._filled.add(name)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _BUFFER_BYTES:
            self._flush(folder)

    def close(self, folder: str) -> None:
        """Write the rows that wait.

        Raises:
            StorageError: the folder cannot be written.
        """
        self._flush(folder)
        self._end_file(folder)

    def empty_columns(self) -> list[str]:
        """Return the columns that have no value."""
        return [item.name for item in self.schema.fields if item.name not in self._filled]

    def source_columns(self) -> pa.Schema:
        """Return the columns that have values, without the row kind."""
        names = self._filled - ({self._changes.kind} if self._changes else set())
        return pa.schema([item for item in self._arrow if item.name in names])

    def _flush(self, folder: str) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_bytes = [], 0
        with _writing(folder):
            if self._writer is None:
                path = os.path.join(folder, f"{self._number:05d}-{len(self.files):05d}.arrow")
                self.files.append(path)
                self._sink = pa.OSFile(path, "wb")
                self._writer = pa.ipc.new_file(self._sink, self._arrow, options=_COMPRESSED)
            for batch in table.to_batches():
                arrays = [
                    _as_type(column, item.type)
                    for column, item in zip(batch.columns, self._arrow, strict=True)
                ]
                self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._arrow))
            size = self._sink.tell()
        if size >= _FILE_BYTES:
            self._end_file(folder)

    def _end_file(self, folder: str) -> None:
        if self._writer is None:
            return
        with _writing(folder):
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None


def _file_schema(schema: Schema) -> pa.Schema:
    """Return the columns of the temporary files, from which a table with the same types can be created."""
    columns = []
    for item, field in zip(arrow_schema(schema), schema.fields, strict=True):
        kind = pa.uuid() if isinstance(field.field_type, UUIDType) else item.type
        columns.append(pa.field(item.name, kind))
    return pa.schema(columns)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == pa.uuid() and column.type != kind:
        return pa.ExtensionArray.from_storage(kind, column)
    return column


@contextmanager
def _writing(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write a temporary file to {folder}: {error.strerror or error}",
            hint="the environment variable TMPDIR names the folder of temporary files",
        ) from error


def _ids(schema: Schema, names: Sequence[str]) -> list[int]:
    """Return the ids of a key's columns; the table's own load reports those that are missing."""
    known = set(schema.column_names)
    return [schema.find_field(name).field_id for name in names if name in known]


def _key_check(schema: Schema, ids: Sequence[int]) -> RowCheck:
    names = [schema.find_column_name(column) or "" for column in ids]
    key = columns_of(schema, ids)
    return key_check(names, lambda batch: cut(batch, key).columns)
