"""PyIceberg's FileIO: for files of this machine, and for Google's and Azure's stores.

PyIceberg's own one is imported when it first opens a local file: the import takes 0.2 s. `lake` reads and writes
files through `Storage`: most commands need only the properties of a table's FileIO, and its metadata location.
In Azure's locations, PyIceberg's takes the host for a part of the container's name.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from lake.core.base.errors import StorageError
from lake.core.io.storage.storage import Storage


class LocalFileIO(FileIO):
    """A `PyArrowFileIO` that is created when a file is first opened, written or deleted."""

    @cached_property
    def made(self) -> FileIO:
        """The `PyArrowFileIO`, created on first use."""
        from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - costs 0.2 s

        return PyArrowFileIO(self.properties)

    def new_input(self, location: str) -> InputFile:
        """Return a file to read; nothing is opened yet."""
        return _LocalInputFile(location, self)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return self.made.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        self.made.delete(location if isinstance(location, str) else location.location)


class _LocalInputFile(InputFile):
    """A file to read of a `LocalFileIO`."""

    def __init__(self, location: str, io: LocalFileIO) -> None:
        super().__init__(location)
        self._io = io

    @cached_property
    def _made(self) -> InputFile:
        return self._io.made.new_input(self.location)

    def __len__(self) -> int:
        return len(self._made)

    def exists(self) -> bool:
        """Whether the file exists."""
        return self._made.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Open the file."""
        return self._made.open(seekable)


class StoreFileIO(FileIO):
    """Files of a store, by the client with which lake reads and writes them."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self.storage = Storage(properties)

    def new_input(self, location: str) -> InputFile:
        """Return a file to read; nothing is opened yet."""
        return _StoredFile(location, self.storage)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return _NewFile(location, self.storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        name = location if isinstance(location, str) else location.location
        failed = self.storage.delete([name]).failed
        if failed:
            raise StorageError(f"{name}: {failed[name]}")


class _OfStorage:
    """What a file to read and a file to write have in common."""

    _location: str

    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)  # type: ignore[call-arg]
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.size(self._location)

    def exists(self) -> bool:
        """Whether the file exists."""
        return self._storage.exists(self._location)


class _StoredFile(_OfStorage, InputFile):
    """A file to read."""

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Open the file."""
        del seekable
        opened: Any = self._storage.open_input(self.location)
        return opened  # type: ignore[no-any-return]


class _NewFile(_OfStorage, OutputFile):
    """A file to write."""

    def to_input_file(self) -> InputFile:
        """Return the file to read it."""
        return _StoredFile(self.location, self._storage)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Open the file for writing.

        Raises:
            FileExistsError: it exists, and is not to be overwritten.
        """
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        opened: Any = self._storage.open_output(self.location)
        return opened  # type: ignore[no-any-return]
