"""Interfaces of data files for readers and writers of rows, independent of the format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.column_mapping import ColumnMapping
from lake.core.data.columns.file_slice import FileSlice
from lake.core.io.objects.new_object import abandon
from lake.core.io.storage.storage import Storage
from lake.core.table.manifests.data_files import DataFile

# Whether any row of a range (first position, number of rows) is needed.
Leaves: TypeAlias = Callable[[int, int], bool]


class RowFile(Protocol):
    """An open data file."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns, with field ids if it has any (see `lake.core.spec.types.arrow_schema.field_id`)."""

    def batches(
        self, columns: ColumnMapping, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the slice's rows in bounded batches, each with its first row's position in the file.

        Args:
            columns: the columns to read, found in `schema`; a batch has them with their names in the file.
            leaves: ranges for which it returns False are not read.

        Raises:
            CorruptFileError: the rows differ from the file's own or the table's metadata.
        """


class NewFile(ABC):
    """A data file that is being written."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._sink = storage.open_output(path)

    @property
    def size(self) -> int:
        """The approximate number of bytes written so far."""
        return int(self._sink.tell())

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write rows with the format's Arrow schema.

        Raises:
            BadInputError: the rows do not match the schema.
        """

    @abstractmethod
    def close(self, **described: Any) -> DataFile:
        """Finish the file, make it durable and return its entry with the given additional fields."""

    def _persist(self) -> int:
        """Make the file durable and return its size in bytes."""
        size = int(self._sink.tell())
        self._sink.close()
        self._storage.persist(self._path)
        return size

    def abandon(self) -> None:
        """Stop writing."""
        abandon(self._sink)


class FileFormat(Protocol):
    """The format-specific settings of new files with one schema."""

    @property
    def ending(self) -> str:
        """The suffix of their names."""

    @property
    def arrow(self) -> pa.Schema:
        """The columns to write; rows with other types of the same values are cast."""

    @property
    def piece_bytes(self) -> int:
        """The preferred number of bytes of Arrow data per write."""

    def create(self, storage: Storage, path: str) -> NewFile:
        """Create a file."""


def check_count(file: FileSlice, rows: int) -> None:
    """Compare the number of rows of a whole file with the table's metadata.

    Raises:
        CorruptFileError: the numbers differ.
    """
    if rows != file.record_count:
        raise CorruptFileError(
            f"{file.path} has {rows} rows, but the table's metadata says {file.record_count}"
        )
