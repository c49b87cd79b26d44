"""A storage of files that are only in memory, to read thousands of damaged ones quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lake.core.base.errors import NotFoundError
from lake.core.io.storage.storage import MAX_METADATA_BYTES, Storage


class MemoryStorage(Storage):
    """Reads files by location from a mapping."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self.files = dict(files)

    def size(self, location: str) -> int:
        """Return a file's length."""
        if location not in self.files:
            raise NotFoundError(f"no such file: {location}")
        return len(self.files[location])

    def read(self, location: str, *, limit: int = MAX_METADATA_BYTES) -> bytes:
        """Return a whole file."""
        assert self.size(location) <= limit
        return self.files[location]

    def open_input(self, location: str, *, size: int | None = None) -> Any:
        """Open a file for random access."""
        return pa.BufferReader(self.read(location))

    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        """Return the names right in a folder, and whether each is a folder."""
        below = [
            name.removeprefix(folder + "/").split("/")
            for name in self.files
            if name.startswith(folder + "/")
        ]
        return sorted({(parts[0], len(parts) > 1) for parts in below})
