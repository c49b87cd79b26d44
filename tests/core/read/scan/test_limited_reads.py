"""How many files of a store are opened for a number of rows."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema

from lake.core.data.deletes.apply import Deletes
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.io.storage.storage import Storage
from lake.core.read.scan.execute import _opened

SETTINGS = ReadSettings(projection=Schema(), schema=Schema(), specs={})
FILES = [
    FileSlice(path=f"s3://bucket/{number}", size_bytes=1, record_count=2, spec_id=0)
    for number in range(40)
]


class Far(Storage):
    """A store that notes which files are opened, and opens some of them together."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.opened: list[str] = []
        self._together = threading.Barrier(together, timeout=10.0)

    def s3(self, location: str) -> Any:
        """Return some store."""
        return object(), location

    def _open(self, location: str, *, follow_link: bool, size: int | None = None) -> Any:
        self.opened.append(location)
        self._together.wait()
        return pa.BufferReader(b"")


def first(
    files: list[FileSlice],
    wanted: int | None,
    settings: ReadSettings,
    taken: int,
    together: int = 1,
) -> Far:
    """Take some items; return the store."""
    storage = Far(together)
    deletes = Deletes(storage, settings, files)
    found = _opened(storage, iter([(file, settings, deletes) for file in files]), wanted)
    assert [next(found)[0] for _ in range(taken)] == files[:taken]
    return storage


@pytest.mark.parametrize(("wanted", "files"), [(1, 1), (2, 1), (3, 2), (8, 4)])
def test_as_many_files_are_opened_as_have_the_rows(wanted: int, files: int) -> None:
    assert sorted(first(FILES, wanted, SETTINGS, files).opened) == sorted(
        file.path for file in FILES[:files]
    )


def test_more_files_are_opened_if_the_first_ones_have_fewer_rows_than_they_should() -> None:
    assert len(first(FILES, 4, SETTINGS, len(FILES)).opened) == len(FILES)


@pytest.mark.parametrize("case", ["a filter", "parts", "all rows"])
def test_files_whose_rows_are_not_known_are_opened_ahead(case: str) -> None:
    settings = replace(SETTINGS, row_filter=AlwaysTrue()) if case == "a filter" else SETTINGS
    files = [replace(file, length=1) for file in FILES] if case == "parts" else FILES

    store = first(files, None if case == "all rows" else 2, settings, taken=1, together=4)

    assert len(store.opened) >= 4
