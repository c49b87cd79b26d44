"""What a data file is to those who read or write rows, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from lake.core.columns.column_mapping import FileColumns
from lake.core.columns.file_slice import FileSlice
from lake.core.errors import CorruptFileError
from lake.core.manifests.data_files import DataFile
from lake.core.storage.storage import Storage

# Whether any row of a range (its first position, how many) is wanted at all.
Leaves: TypeAlias = Callable[[int, int], bool]


class RowFile(Protocol):
    """An open data file."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns, with field ids where it has any (see `lake.core.types.arrow_schema.field_id`)."""

    def batches(
        self, columns: FileColumns, leaves: Leaves | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the slice's rows in bounded batches, each with its first row's position in the file.

        Args:
            columns: which are read, found in `schema`; a batch has them under their names in the file.
            leaves: ranges of which it says no are not read.

        Raises:
            CorruptFileError: the file holds other rows than it promises, or than the table's metadata says.
        """


class NewFile(ABC):
    """A data file that is being written."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._sink = storage.open_output(path)

    @property
    def size(self) -> int:
        """About how many bytes it has so far."""
        return int(self._sink.tell())

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write rows with the format's Arrow schema.

        Raises:
            BadInputError: they do not fit it.
        """

    @abstractmethod
    def close(self, **described: Any) -> DataFile:
        """Finish the file, make it durable and return its entry, with whatever else that is to say."""

    def _persist(self) -> int:
        """Make what was written durable and return how many bytes it has."""
        size = int(self._sink.tell())
        self._sink.close()
        self._storage.persist(self._path)
        return size

    def abandon(self) -> None:
        """Stop writing."""
        with suppress(OSError, pa.ArrowException):
            self._sink.close()


class FileForm(Protocol):
    """What the new files of one schema and format have in common."""

    @property
    def ending(self) -> str:
        """The end of their names."""

    @property
    def arrow(self) -> pa.Schema:
        """The columns that are written; rows with other types of the same values are cast."""

    @property
    def piece_bytes(self) -> int:
        """About how many bytes of Arrow are best written at once."""

    def create(self, storage: Storage, path: str) -> NewFile:
        """Begin a file."""


def check_count(file: FileSlice, rows: int) -> None:
    """Compare a whole file's rows with what the table's metadata says.

    Raises:
        CorruptFileError: they are others.
    """
    if rows != file.record_count:
        raise CorruptFileError(
            f"{file.path} has {rows} rows, the table's metadata says {file.record_count}"
        )
