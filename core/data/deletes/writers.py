"""Writers of delete files: equality deletes, and position deletes as files or as vectors in one Puffin file.

Format: https://iceberg.apache.org/spec/#delete-formats. Names: Iceberg's OutputFileFactory, with the suffix
that its engines use for delete files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake.core.base.errors import RefusedError
from lake.core.data.columns.data_file import FileFormat, NewFile
from lake.core.data.deletes.position_files import DELETED_POSITION, POSITION_SCHEMA
from lake.core.data.deletes.puffin import PuffinWriter
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.formats.parquet.options import OF_DATA_FILES_ONLY
from lake.core.data.rows.file_formats import format_for
from lake.core.data.rows.file_names import FileNames, folder_of
from lake.core.data.rows.writer import Output, TableWriter, TransactionalWriter, WriteSettings
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import (
    DELETE_FILE_BYTES,
    FILE,
    OF_DELETE_FILES,
    check,
)
from lake.core.spec.types.format_versions import DELETE_FILES_SINCE, DELETION_VECTORS_SINCE
from lake.core.spec.types.transforms import Indices, Partition
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DataFile
from lake.core.table.snapshots.delete_scopes import DELETED_PATH, PUFFIN

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_METRICS = "write.metadata.metrics."
_SUFFIX = "-deletes"
_VECTORS_ENDING = "-deletes.puffin"
# A row takes 12 bytes of memory during the write.
_ROW_GROUP_ROWS = 1024 * 1024


def open_equality_writer(
    storage: Storage,
    settings: WriteSettings,
    *,
    columns: Schema,
    equality_ids: Sequence[int],
    names: FileNames,
) -> TableWriter:
    """Return a writer of equality delete files.

    Args:
        storage: the storage for the files.
        settings: the table's settings.
        columns: the columns of the files: at least the compared ones.
        equality_ids: field ids of the compared columns.
        names: provides the files' names.
    """
    ids = tuple(sorted(set(equality_ids)))
    return TableWriter(
        Output(
            storage=storage,
            settings=settings,
            file_format=format_for(
                settings.delete_format,
                columns,
                _delete_file_properties(settings),
                {"delete-type": "equality", "delete-field-ids": ", ".join(map(str, ids))},
            ),
            names=names,
            target_bytes=DELETE_FILE_BYTES.of(settings.properties),
            suffix=_SUFFIX,
            described={"content": EQUALITY_DELETES, "equality_ids": ids},
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """Rows of one data file to be deleted.

    Args:
        path: the data file's path.
        spec_id: its partition spec.
        partition: its partition's values.
        positions: the rows.
        earlier: the rows that its position deletes, or its vector, already delete.
    """

    path: str
    spec_id: int
    partition: Partition
    positions: RowPositions
    earlier: RowPositions = field(default_factory=RowPositions)


class PositionDeleteWriter(TransactionalWriter):
    """Writes position deletes for format version 2: one file for each data file."""

    def __init__(self, storage: Storage, settings: WriteSettings, names: FileNames) -> None:
        self._storage = storage
        self._settings = settings
        self._names = names
        self._format = _position_format(settings)
        self._paths: list[str] = []
        self._files: list[DataFile] = []

    def add(self, deleted: DeletedRows) -> None:
        """Write the positions that are not yet deleted, if any."""
        positions = deleted.positions.without(deleted.earlier).to_numpy()
        if not len(positions):
            return
        path = self._new_path(deleted)
        self._paths.append(path)
        file = self._format.create(self._storage, path)
        try:
            self._write(file, deleted.path, positions)
            entry = file.close(
                content=POSITION_DELETES,
                spec_id=deleted.spec_id,
                partition=deleted.partition,
                referenced_data_file=deleted.path,
            )
        except BaseException:
            file.abandon()
            raise
        self._files.append(_with_bounds(entry, deleted.path, positions))

    def _new_path(self, deleted: DeletedRows) -> str:
        settings = self._settings
        # The columns of an older spec may have been dropped.
        folder = (
            folder_of(settings.spec, settings.schema, deleted.partition)
            if deleted.spec_id == settings.spec.spec_id
            else ""
        )
        return self._names.new_path(_SUFFIX + self._format.ending, folder)

    def _write(self, file: NewFile, path: str, positions: Indices) -> None:
        for start in range(0, len(positions), _ROW_GROUP_ROWS):
            self._write_group(file, [(path, positions[start : start + _ROW_GROUP_ROWS])])

    def _write_group(self, file: NewFile, parts: Sequence[tuple[str, Indices]]) -> None:
        paths, positions = zip(*parts, strict=True)
        numbers = np.repeat(
            np.arange(len(paths), dtype=np.int32), [len(some) for some in positions]
        )
        named = pa.DictionaryArray.from_arrays(numbers, list(paths))
        columns = [named, pa.array(np.concatenate(positions))]
        file.write(pa.Table.from_arrays(columns, self._format.arrow.names))

    def close(self) -> list[DataFile]:
        """Return the files' entries."""
        self.closed = True
        return self._files

    def abort(self) -> None:
        """Delete everything that was written."""
        self._storage.delete(self._paths)


class PartitionDeleteWriter(PositionDeleteWriter):
    """Writes position deletes for format version 2: files of the target size, each for data files of one partition.

    Data files are added by partition, and within a partition by path: a delete file is sorted by path.
    """

    def __init__(self, storage: Storage, settings: WriteSettings, names: FileNames) -> None:
        super().__init__(storage, settings, names)
        self._target = DELETE_FILE_BYTES.of(settings.properties)
        self._file: NewFile | None = None
        self._named: list[DeletedRows] = []
        self._pending: list[tuple[str, Indices]] = []
        self._pending_rows = 0

    def add(self, deleted: DeletedRows) -> None:
        """Write the positions that are not yet deleted, if any."""
        positions = deleted.positions.without(deleted.earlier).to_numpy()
        if not len(positions):
            return
        if self._named and not self._continues(self._named[-1], deleted):
            self._finish()
        if self._file is None:
            path = self._new_path(deleted)
            self._paths.append(path)
            self._file = self._format.create(self._storage, path)
        self._named.append(deleted)
        for start in range(0, len(positions), _ROW_GROUP_ROWS):
            part = positions[start : start + _ROW_GROUP_ROWS]
            self._pending.append((deleted.path, part))
            self._pending_rows += len(part)
            if self._pending_rows >= _ROW_GROUP_ROWS:
                self._flush()

    def _continues(self, last: DeletedRows, deleted: DeletedRows) -> bool:
        """Return whether a data file's positions go to the open file."""
        same = (last.spec_id, last.partition) == (deleted.spec_id, deleted.partition)
        return same and self._file is not None and self._file.size < self._target

    def _flush(self) -> None:
        if self._file is not None and self._pending:
            self._write_group(self._file, self._pending)
        self._pending, self._pending_rows = [], 0

    def _finish(self) -> None:
        self._flush()
        file, named = self._file, self._named
        if file is None:
            return
        sole = named[0].path if len(named) == 1 else None
        entry = file.close(
            content=POSITION_DELETES,
            spec_id=named[0].spec_id,
            partition=named[0].partition,
            referenced_data_file=sole,
        )
        self._file, self._named = None, []
        if sole is not None:
            rest = named[0].positions.without(named[0].earlier)
            self._files.append(_with_bounds(entry, sole, rest.to_numpy()))
        else:
            # As in Iceberg Java: bounds of several data files exclude hardly any other.
            self._files.append(replace(entry, lower_bounds={}, upper_bounds={}))

    def close(self) -> list[DataFile]:
        """Return the files' entries."""
        self._finish()
        return super().close()

    def abort(self) -> None:
        """Delete everything that was written."""
        if self._file is not None:
            self._file.abandon()
        super().abort()


class VectorWriter(TransactionalWriter):
    """Writes position deletes for format version 3: vectors, all in one Puffin file."""

    def __init__(self, storage: Storage, names: FileNames) -> None:
        self._storage = storage
        self._puffin = PuffinWriter(storage, names.new_path(_VECTORS_ENDING))
        self._entries: list[DataFile] = []

    def add(self, deleted: DeletedRows) -> None:
        """Write a vector of all positions, unless all are already deleted."""
        if not len(deleted.positions.without(deleted.earlier)):
            return
        positions = RowPositions()
        positions.update(deleted.earlier)
        positions.update(deleted.positions)
        offset, size = self._puffin.add_vector(
            positions.to_blob(), data_file=deleted.path, positions=len(positions)
        )
        self._entries.append(
            DataFile(
                path=self._puffin.path,
                format=PUFFIN,
                content=POSITION_DELETES,
                spec_id=deleted.spec_id,
                partition=deleted.partition,
                record_count=len(positions),
                size_bytes=0,
                referenced_data_file=deleted.path,
                content_offset=offset,
                content_size_bytes=size,
            )
        )

    def close(self) -> list[DataFile]:
        """Finish the file and return one entry for each vector."""
        size = self._puffin.close()
        self.closed = True
        return [replace(entry, size_bytes=size) for entry in self._entries]

    def abort(self) -> None:
        """Delete everything that was written."""
        self._puffin.abort()


PositionWriter = PositionDeleteWriter | VectorWriter


def open_position_writer(
    storage: Storage,
    settings: WriteSettings,
    *,
    format_version: int,
    names: FileNames,
    granularity: str = FILE,
) -> PositionWriter:
    """Return a writer for position deletes in the table's format version.

    Args:
        storage: the storage for the files.
        settings: the table's settings.
        format_version: the table's.
        names: provides the files' names.
        granularity: whether a position delete file is for one data file, or for several of a partition.

    Raises:
        RefusedError: the format version does not support deletes.
    """
    if format_version < DELETE_FILES_SINCE:
        raise RefusedError(
            f"tables of format version {format_version} do not support delete files",
            hint="upgrade the table to version 2",
        )
    if format_version < DELETION_VECTORS_SINCE:
        writer = PositionDeleteWriter if granularity == FILE else PartitionDeleteWriter
        return writer(storage, settings, names)
    return VectorWriter(storage, names)


def check_delete_files(settings: WriteSettings) -> None:
    """Check the table properties for delete files.

    Raises:
        InvalidRequestError: a property has a value that is not allowed.
    """
    own = f"write.delete.{settings.delete_format}."
    check(settings.properties, [item for item in OF_DELETE_FILES if item.name.startswith(own)])
    DELETE_FILE_BYTES.of(settings.properties)
    _position_format(settings)


def _delete_file_properties(settings: WriteSettings) -> dict[str, str]:
    """Return a table's properties, with those for delete files in place of those for data files."""
    own = f"write.delete.{settings.delete_format}."
    instead = {
        f"write.{settings.delete_format}.{name.removeprefix(own)}": value
        for name, value in settings.properties.items()
        if name.startswith(own)
    }
    found = {**settings.properties, **instead}
    return {name: text for name, text in found.items() if not name.startswith(OF_DATA_FILES_ONLY)}


def _position_format(settings: WriteSettings) -> FileFormat:
    properties = {
        name: value
        for name, value in _delete_file_properties(settings).items()
        if not name.startswith(_METRICS)
    }
    return format_for(
        settings.delete_format,
        POSITION_SCHEMA,
        {**properties, f"{_METRICS}default": "full"},
        {"delete-type": "position"},
    )


def _with_bounds(file: DataFile, path: str, positions: Indices) -> DataFile:
    """Return an entry whose bounds identify one data file, regardless of the length of its path."""

    def bounds(position: int) -> dict[int, bytes]:
        number = int(position).to_bytes(8, "little", signed=True)
        return {DELETED_PATH: path.encode(), DELETED_POSITION: number}

    return replace(file, lower_bounds=bounds(positions[0]), upper_bounds=bounds(positions[-1]))
