"""Files of a store that are opened before they are read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake.core.base.errors import NotFoundError
from lake.core.io.storage.opened_ahead import each_looked_up, each_opened
from lake.core.io.storage.storage import Storage

_SECONDS = 10.0


@dataclass(frozen=True)
class File:
    """A file of a table."""

    path: str
    size_bytes: int = 1


class Far(Storage):
    """A store whose answers come when as many requests wait as a test says.

    Args:
        together: how many requests are answered together; 1 answers each at once.
    """

    def __init__(self, together: int = 1) -> None:
        super().__init__()
        self.opened: list[str] = []
        self._together = threading.Barrier(together, timeout=_SECONDS)

    def s3(self, location: str) -> Any:
        """Return some store."""
        return object(), location

    def _open(self, location: str, *, follow_link: bool, size: int | None = None) -> Any:
        assert not follow_link
        assert size in {None, 1}
        self.opened.append(location)
        self._together.wait()
        if location.endswith("missing"):
            raise NotFoundError(f"no such file: {location}")
        return pa.BufferReader(location.encode())


def files(*names: str) -> list[File]:
    """Return files of a bucket."""
    return [File(f"s3://bucket/{name}") for name in names]


def test_files_of_a_store_are_opened_at_the_same_time_and_come_in_their_order() -> None:
    storage, asked = Far(together=4), files("d", "a", "c", "b")

    found = [storage.open_input(file.path).read() for file in each_opened(storage, asked)]

    assert found == [file.path.encode() for file in asked]
    # None of them was opened a second time.
    assert sorted(storage.opened) == sorted(file.path for file in asked)


def test_only_the_first_reader_of_a_file_gets_the_one_that_is_open() -> None:
    storage = Far()
    for file in each_opened(storage, files("a", "b")):
        first, second = (storage.open_input(file.path) for _ in range(2))
        first.close()
        assert second.read() == file.path.encode()

    assert sorted(storage.opened) == [f"s3://bucket/{name}" for name in "aabb"]


def test_a_file_that_is_not_read_is_not_kept() -> None:
    storage = Far()

    for _ in each_opened(storage, files("a")):
        pass
    assert storage.open_input("s3://bucket/a").read() == b"s3://bucket/a"

    assert storage.opened == ["s3://bucket/a"] * 2


def test_a_file_twice_in_a_row_is_read_twice() -> None:
    storage = Far()

    found = [storage.open_input(file.path).read() for file in each_opened(storage, files("a", "a"))]

    assert found == [b"s3://bucket/a"] * 2


def test_an_error_comes_in_the_place_of_its_file() -> None:
    found = each_opened(Far(), files("a", "missing", "b"))

    assert next(found).path == "s3://bucket/a"
    with pytest.raises(NotFoundError, match="missing"):
        next(found)


def test_the_item_may_be_something_else_than_its_file() -> None:
    storage, (first, second) = Far(together=2), files("a", "b")

    found = list(each_opened(storage, [1, 0], [first, second].__getitem__))

    assert found == [1, 0]
    assert sorted(storage.opened) == [first.path, second.path]


def test_what_the_parts_of_a_file_need_is_read_once_before_them() -> None:
    storage, asked, read = Far(), files("a", "a", "b", "a"), list[str]()

    found = [
        (file.path, len(read) > 0)
        for file in each_opened(storage, asked, before=lambda file: read.append(file.path))
    ]

    assert found == [(file.path, True) for file in asked]
    assert sorted(read) == [f"s3://bucket/{name}" for name in "aab"]
    assert len(storage.opened) == 4


def test_what_items_need_is_looked_up_at_the_same_time_and_nothing_is_opened() -> None:
    storage, asked, together = Far(), files("d", "a", "c"), threading.Barrier(3, timeout=_SECONDS)

    found = list(each_looked_up(storage, asked, lambda _: together.wait() and None))

    assert found == asked
    assert storage.opened == []


def test_files_of_a_disk_are_opened_when_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    storage, asked = Storage(), [File(str(tmp_path / name)) for name in ("a", "missing")]

    found = each_opened(storage, asked)

    assert [storage.open_input(next(found).path).read(), next(found)] == [b"x", asked[1]]
