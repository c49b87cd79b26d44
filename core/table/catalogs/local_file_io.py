"""PyIceberg's FileIO for files of this machine, imported when it first opens a file.

The import takes 0.2 s. `lake` reads and writes files through `Storage`: most commands need only the properties of a
table's FileIO, and the location of its metadata file.
"""

from __future__ import annotations

from functools import cached_property

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile


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
