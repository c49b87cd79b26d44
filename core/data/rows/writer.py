"""Write rows to a table's data files of the target size, with one open file per partition.

The buffer is bounded: rows of a file are buffered until a row group is full, and if many partitions are open, the
largest is written first. File names are unique, also for several attempts at one task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lake.core.data.columns.data_file import FileFormat, NewFile
from lake.core.data.columns.stored_columns import stored_schema, without_unstored
from lake.core.data.formats.parquet.copying.model import Model
from lake.core.data.formats.parquet.copying.source import Part
from lake.core.data.formats.parquet.copying.target import CopiedFile, CopyFormat
from lake.core.data.rows.file_formats import format_for
from lake.core.data.rows.file_names import FileNames, folder_of, refuse_outdated
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import DATA_FILE_BYTES, DATA_FORMAT, DELETE_FORMAT
from lake.core.spec.types.arrow_schema import (
    schema_from_plain,
    schema_to_plain,
    spec_from_plain,
    spec_to_plain,
)
from lake.core.spec.types.transforms import Partition, group_rows
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from lake.core.table.catalogs.catalog import Table

# The limit for all partitions of one task together.
_BUFFER_BYTES = 256 * 1024 * 1024
# A remainder smaller than this fraction of the target does not get its own row group.
_NEARLY_FULL = 0.95
_SMALLEST_ROW_GROUP = 64 * 1024
# Small batches are concatenated at this number, because each has a memory overhead.
_MOST_SMALL = 64
# Systems usually allow 1024 for each process.
_MOST_OPEN_FILES = 256
_PROPERTIES = (
    "write.format.",
    "write.parquet.",
    "write.orc.",
    "write.avro.",
    "write.metadata.metrics.",
    "write.object-storage.",
    "write.data.",
    "write.delete.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """The settings with which a task writes a table's files.

    Args:
        schema: the columns to write.
        spec: the partition spec.
        data_location: the folder of the table's data files.
        location: the table's location.
        operation_id: the commit's UUID; part of every file's name.
        target_bytes: the size at which a file is closed.
        properties: the table's properties that affect writing.
        order: the order in which writers that sort write rows.
        sort_order_id: the id of `order`, if it is the table's sort order.
    """

    schema: Schema
    spec: PartitionSpec
    data_location: str
    location: str
    operation_id: str
    target_bytes: int = DATA_FILE_BYTES.default
    properties: Mapping[str, str] = field(default_factory=dict)
    order: RowOrder | None = None
    sort_order_id: int | None = None

    @classmethod
    def of(
        cls,
        table: Table,
        operation_id: str,
        *,
        target_bytes: int | None = None,
        spec: PartitionSpec | None = None,
        schema: Schema | None = None,
    ) -> WriteSettings:
        """Return the settings for a table's current state.

        Raises:
            RefusedError: the table requires a file format that lake does not write or an unsupported location of
                files, or has a column that cannot be written to data files.
        """
        refuse_outdated(table.properties)
        properties = {k: v for k, v in table.properties.items() if k.startswith(_PROPERTIES)}
        stored_schema(schema or table.schema)
        return cls(
            schema=schema or table.schema,
            spec=spec or table.spec,
            data_location=table.data_location,
            location=table.metadata.location,
            operation_id=operation_id,
            target_bytes=target_bytes or DATA_FILE_BYTES.of(table.properties),
            properties=properties,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "schema": schema_to_plain(self.schema),
            "spec": spec_to_plain(self.spec),
            "data_location": self.data_location,
            "location": self.location,
            "operation_id": self.operation_id,
            "target_bytes": self.target_bytes,
            "properties": dict(self.properties),
            "order": self.order and self.order.to_plain(),
            "sort_order_id": self.sort_order_id,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> WriteSettings:
        """Rebuild from `to_plain`'s values."""
        values = dict(plain)
        values["schema"] = schema_from_plain(values["schema"])
        values["spec"] = spec_from_plain(values["spec"])
        values["order"] = values["order"] and RowOrder.from_plain(values["order"])
        return cls(**values)

    @property
    def data_format(self) -> str:
        """The format of data files, in lower case."""
        return DATA_FORMAT.of(self.properties)

    @property
    def delete_format(self) -> str:
        """The format of delete files, in lower case."""
        return DELETE_FORMAT.of(self.properties) or self.data_format

    def check_data_files(self) -> None:
        """Check the properties that affect data files.

        Raises:
            InvalidRequestError: the value of a property is not valid.
        """
        format_for(self.data_format, self.schema, self.properties)
        self.file_names(task=0, attempt="")

    def file_names(self, *, task: int, attempt: str) -> FileNames:
        """Return the names of the files that an attempt at a task writes."""
        return FileNames(
            location=self.location,
            data_location=self.data_location,
            properties=self.properties,
            operation_id=self.operation_id,
            task=task,
            attempt=attempt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The settings of all files of one writer.

    Args:
        storage: the storage to write to.
        settings: the write settings.
        file_format: the columns and the format of the files.
        names: generates the file names.
        target_bytes: the size at which a file is closed.
        suffix: the suffix of file names before the format's.
        described: additional fields of the manifest entries.
        stored: the columns to write, if rows have other columns too.
    """

    storage: Storage
    settings: WriteSettings
    file_format: FileFormat
    names: FileNames
    target_bytes: int
    suffix: str = ""
    described: Mapping[str, Any] = field(default_factory=dict)
    stored: Schema | None = None

    def stored_part(self, rows: pa.Table) -> pa.Table:
        """Return the columns of rows that are written to files."""
        return rows if self.stored is None else without_unstored(rows, self.stored)

    def new_path(self, partition: Partition) -> str:
        """Return the path of a new file."""
        settings = self.settings
        return self.names.new_path(
            self.suffix + self.file_format.ending,
            folder_of(settings.spec, settings.schema, partition),
        )

    def finish(self, file: NewFile, partition: Partition) -> DataFile:
        """Close a file and return its entry."""
        return file.close(spec_id=self.settings.spec.spec_id, partition=partition, **self.described)


class RollingWriter:
    """Writes the rows of one partition to files near the target size."""

    def __init__(self, output: Output, partition: Partition) -> None:
        self._output = output
        self._partition = partition
        self._waiting: list[pa.RecordBatch] = []
        self._small = 0
        self.waiting_bytes = 0
        self._file: NewFile | None = None
        self._ratio = 1.0
        self.files: list[DataFile] = []
        self.paths: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows, and write a row group when it is full."""
        if batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self._coalesce(batch.nbytes)
        while self._waiting and self.waiting_bytes >= (limit := self._row_group_limit()):
            self._flush(limit)

    def _coalesce(self, newest_bytes: int) -> None:
        """Concatenate many small batches at the end of the buffer."""
        self._small = self._small + 1 if newest_bytes < _SMALLEST_ROW_GROUP else 0
        if self._small >= _MOST_SMALL:
            self._waiting[-self._small :] = [pa.concat_batches(self._waiting[-self._small :])]
            self._small = 0

    def _row_group_limit(self) -> int:
        output = self._output
        written = self._file.size if self._file else 0
        room = (output.target_bytes - written) / self._ratio
        return int(min(output.file_format.piece_bytes, max(room, _SMALLEST_ROW_GROUP)))

    def flush(self) -> None:
        """Write all buffered rows."""
        while self._waiting:
            self._flush(self.waiting_bytes)

    def _flush(self, limit: int) -> None:
        rows = sum(batch.num_rows for batch in self._waiting)
        part = limit / self.waiting_bytes if self.waiting_bytes else 1
        share = min(rows, max(1, int(rows * part)))
        table = pa.Table.from_batches(self._waiting)
        head, rest = table.slice(0, share), table.slice(share)
        self._waiting, self._small = rest.to_batches(), 0
        taken = int(self.waiting_bytes * share / rows)
        self.waiting_bytes = self.waiting_bytes - taken if self._waiting else 0
        file = self._open_file()
        before = file.size
        file.write(self._output.stored_part(head))
        self._ratio = max((file.size - before) / max(taken, 1), 0.001)
        self._finish_full()

    def copy(self, part: Part, nan_counts: Mapping[int, int]) -> None:
        """Copy a row group of another file; the buffered rows stay buffered."""
        if self.open_bytes + len(part.data) > self._output.target_bytes:
            self.finish_file()
        file = self._open_file()
        if not isinstance(file, CopiedFile):
            raise TypeError(f"row groups cannot be copied to {file}")
        file.append(part, nan_counts)
        self._finish_full()

    def _open_file(self) -> NewFile:
        if self._file is None:
            path = self._output.new_path(self._partition)
            self.paths.append(path)
            self._file = self._output.file_format.create(self._output.storage, path)
        return self._file

    def _finish_full(self) -> None:
        if self.open_bytes >= self._output.target_bytes * _NEARLY_FULL:
            self.finish_file()

    @property
    def open_bytes(self) -> int:
        """The bytes in the open file, or 0."""
        return self._file.size if self._file else 0

    def finish_file(self) -> None:
        """Close the open file, if any; later rows are written to a new file."""
        if self._file is not None:
            self.files.append(self._output.finish(self._file, self._partition))
            self._file = None

    def close(self) -> list[DataFile]:
        """Write the buffered rows and return the files; none if there were no rows."""
        self.flush()
        self.finish_file()
        return self.files

    def abandon(self) -> None:
        """Close the open file without finishing it."""
        self._waiting.clear()
        if self._file is not None:
            self._file.abandon()
            self._file = None


class TransactionalWriter(ABC):
    """A writer that removes its files after an error, or if it is not closed."""

    closed = False

    @abstractmethod
    def abort(self) -> None:
        """Remove everything that was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or not self.closed:
            self.abort()


class TableWriter(TransactionalWriter):
    """Writes rows of several partitions, each to its own files. Use it as a context manager."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._open: dict[Partition, RollingWriter] = {}
        self.rows = 0

    @property
    def model(self) -> Model:
        """What files must have in common with the new ones for `copy_to`.

        Raises:
            TypeError: nothing can be copied to the files.
        """
        file_format = self._output.file_format
        if not isinstance(file_format, CopyFormat):
            raise TypeError(f"row groups cannot be copied to files of {file_format}")
        return file_format.model

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, each to its partition."""
        settings = self._output.settings
        for partition, part in group_rows(batch, settings.spec, settings.schema):
            self._add(partition, part)
        self._flush_over_budget()
        self._limit_open_files()

    def write_to(self, partition: Partition, rows: pa.RecordBatch) -> None:
        """Write rows of one partition."""
        self._add(partition, rows)
        self._flush_over_budget()
        self._limit_open_files()

    def copy_to(self, partition: Partition, part: Part, nan_counts: Mapping[int, int]) -> None:
        """Copy a row group of another file of a partition.

        Args:
            partition: the partition of its rows.
            part: the row group.
            nan_counts: how many NaN it has, by the id of the column; others are not known.
        """
        self._writer(partition).copy(part, nan_counts)
        self.rows += part.rows
        self._limit_open_files()

    def _writer(self, partition: Partition) -> RollingWriter:
        if partition not in self._open:
            self._open[partition] = RollingWriter(self._output, partition)
        return self._open[partition]

    def _add(self, partition: Partition, rows: pa.RecordBatch) -> None:
        writer = self._writer(partition)
        # A slice keeps the whole batch in memory, which with many partitions would be the whole input.
        alone = len(self._open) == 1
        writer.write(rows if alone else _compact(rows))
        self.rows += rows.num_rows

    def _flush_over_budget(self) -> None:
        while len(self._open) > 1:
            waiting = sum(writer.waiting_bytes for writer in self._open.values())
            if waiting <= _BUFFER_BYTES:
                return
            max(self._open.values(), key=lambda writer: writer.waiting_bytes).flush()
            self._limit_open_files()

    def _limit_open_files(self) -> None:
        if len(self._open) <= _MOST_OPEN_FILES:
            return
        being_written = [writer for writer in self._open.values() if writer.open_bytes]
        being_written.sort(key=lambda writer: writer.open_bytes)
        for writer in being_written[_MOST_OPEN_FILES:]:
            writer.finish_file()

    def close(self) -> list[DataFile]:
        """Finish all files and return them."""
        files = [file for writer in self._open.values() for file in writer.close()]
        self.closed = True
        return files

    def abort(self) -> None:
        """Remove everything that was written."""
        written: list[str] = []
        for writer in self._open.values():
            writer.abandon()
            written += writer.paths
        self._output.storage.delete(written)
        self._open.clear()


def open_writer(
    storage: Storage,
    settings: WriteSettings,
    *,
    task: int,
    attempt: str,
    names: FileNames | None = None,
    copies: bool = False,
) -> TableWriter:
    """Return a writer of data files.

    Args:
        storage: the storage to write to.
        settings: the write settings.
        task: the number of the task, part of the file names.
        attempt: a text that is unique to this attempt at the task.
        names: generates the file names if the task writes other files too.
        copies: whether row groups are copied to the files.
    """
    stored = stored_schema(settings.schema)
    return TableWriter(
        Output(
            storage=storage,
            settings=settings,
            file_format=format_for(
                settings.data_format, stored, settings.properties, copies=copies
            ),
            names=names or settings.file_names(task=task, attempt=attempt),
            target_bytes=settings.target_bytes,
            described={"sort_order_id": settings.sort_order_id},
            stored=None if stored is settings.schema else stored,
        )
    )


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch.slice(0, 0)]) if batch.num_rows else batch
