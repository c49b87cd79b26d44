"""Bytes are read, written and deleted where they should be, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from lake.core.base.errors import BadInputError, CorruptFileError, NotAuthorisedError, NotFoundError
from lake.core.io.storage import storage as storage_module
from lake.core.io.storage.storage import Storage


def test_what_is_written_is_read_back_under_every_spelling(tmp_path: Path) -> None:
    storage = Storage()
    path = tmp_path / "data" / "p=a#b?c %2F é" / "f.avro"
    storage.write(f"file://{path}", b"bytes")

    for location in (str(path), f"file://{path}", f"file:{path}"):
        assert storage.read(location) == b"bytes"
        assert storage.size(location) == 5
    assert path.read_bytes() == b"bytes"


def test_missing_files_folders_and_large_files_are_distinguished(tmp_path: Path) -> None:
    storage = Storage()
    storage.write(str(tmp_path / "f"), b"12345")

    with pytest.raises(NotFoundError):
        storage.read(str(tmp_path / "g"))
    with pytest.raises(NotFoundError):
        storage.size(str(tmp_path))
    with pytest.raises(CorruptFileError):
        storage.read(str(tmp_path / "f"), limit=4)
    with pytest.raises(BadInputError):
        storage.read("nosuchscheme://host/f")
    assert not storage.exists(str(tmp_path / "g"))


def test_deleting_a_missing_file_succeeds_and_a_failure_is_reported(tmp_path: Path) -> None:
    storage = Storage()
    there, gone, folder = (str(tmp_path / name) for name in ("there", "gone", "folder"))
    storage.write(there, b"")
    os.mkdir(folder)

    outcome = storage.delete([there, gone, folder, there])

    assert outcome.deleted == [there, gone]
    assert list(outcome.failed) == [folder]
    assert os.path.isdir(folder)


def test_nothing_is_deleted_through_a_link_that_leaves_the_table(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "data").mkdir(parents=True)
    precious = [outside / "precious", outside / "data" / "precious"]
    for path in precious:
        path.write_text("rows")
    data = tmp_path / "db" / "t" / "data"
    data.mkdir(parents=True)
    (data / "p=1").symlink_to(outside)
    (data / "own").write_text("rows")
    own = Storage(roots=[f"file://{data.parent}/"])

    failed = [
        Storage().delete([str(data / "p=1" / "precious")]).failed,
        own.delete([f"file:{data}//p=1/precious"]).failed,
        own.delete([str(data / "p=1" / "data" / "precious")]).failed,
    ]

    assert all(path.exists() for path in precious)
    assert [len(places) for places in failed] == [1, 1, 1]
    assert own.delete([f"{data}/own"]).failed == {}
    assert not (data / "own").exists()


def test_files_are_found_by_a_part_of_their_name_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x-op1.parquet").touch()
    data = tmp_path / "data"
    (data / "p=1").mkdir(parents=True)
    (data / "p=1" / "a-op1.parquet").touch()
    (data / "b-op2.parquet").touch()
    (data / "link").symlink_to(outside)

    found = Storage().find(f"file://{data}", "op1")

    assert found == [f"file://{data}/p=1/a-op1.parquet"]
    assert Storage().find(f"file://{tmp_path}/none", "op1") == []


def test_a_file_that_may_not_be_read_is_an_authorisation_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Locked:
        def open_input_file(self, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

    storage = Storage()
    monkeypatch.setattr(storage, "resolve", lambda location: (Locked(), location))
    with pytest.raises(NotAuthorisedError):
        storage.read(str(tmp_path / "f"))


def test_secrets_are_not_shown() -> None:
    storage = Storage({"s3.secret-access-key": "canary"})
    assert "canary" not in repr(storage)


def test_files_right_in_a_folder_are_listed_with_length_and_time_but_no_links(
    tmp_path: Path,
) -> None:
    (tmp_path / "b.avro").write_bytes(b"12345")
    (tmp_path / "a.avro").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.avro").symlink_to(tmp_path / "a.avro")
    os.utime(tmp_path / "b.avro", (1000.5, 1000.5))
    storage = Storage()

    found = storage.list_files(f"file://{tmp_path}/")

    assert [(file.location, file.length) for file in found] == [
        (f"file://{tmp_path}/a.avro", 1),
        (f"file://{tmp_path}/b.avro", 5),
    ]
    assert found[1].modified_ms == 1_000_500
    assert storage.list_files(f"{tmp_path}/nowhere") == []
    assert storage.list_files(f"{tmp_path}/a.avro") == []


def test_many_files_are_looked_up_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    there, gone = f"{tmp_path}/a", f"{tmp_path}/b"
    long = f"{tmp_path}/{'x' * 300}"

    found = Storage().look_up([there, gone, there, str(tmp_path), long])

    assert found.keys() == {there, gone, str(tmp_path), long}
    assert [found[name] is None for name in (gone, str(tmp_path), long)] == [True, True, True]
    assert found[there] is not None
    assert found[there].length == 5


class _Remote(Storage):
    """A store whose objects are in a local folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._below = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
        self.opened: list[str] = []

    def resolve(self, location: str) -> tuple[Any, str]:
        self.opened.append(location)
        return self._below, location.removeprefix("s3://bucket/")


@pytest.mark.parametrize(("size", "requests"), [(0, 1), (10, 1), (1024 * 1024 + 1, 2)])
def test_a_small_source_of_a_store_is_requested_once_and_is_of_one_version(
    tmp_path: Path, size: int, requests: int
) -> None:
    storage = _Remote(tmp_path)
    (tmp_path / "f").write_bytes(b"1" * size)
    first = storage.open_source("s3://bucket/f").read()
    (tmp_path / "f").write_bytes(b"2" * size)
    second = storage.open_source("s3://bucket/f").read()

    assert first == b"1" * size
    assert second == (first if requests == 1 else b"2" * size)
    assert len(storage.opened) == requests
    # Another load has a storage of its own.
    assert _Remote(tmp_path).open_source("s3://bucket/f").read() == b"2" * size


def test_few_small_sources_are_kept_and_the_files_of_a_table_never(tmp_path: Path) -> None:
    storage = _Remote(tmp_path)
    names = [f"s3://bucket/{number}" for number in range(70)]
    for name in names:
        (tmp_path / name.rpartition("/")[2]).write_bytes(b"x" * 250_000)
        storage.open_source(name)
        storage.open_input(name)
    before = len(storage.opened)

    for name in names:
        storage.open_source(name)

    kept = len(names) - (len(storage.opened) - before)
    assert before == 2 * len(names)
    assert kept == 16 * 1024 * 1024 // 250_000


def test_what_is_built_from_a_file_is_built_once_until_the_file_is_another_one(
    tmp_path: Path,
) -> None:
    earlier, storage, place, made = Storage(), Storage(), tmp_path / "f", list[bytes]()
    storage.share(earlier)

    def make(data: bytes, location: str) -> tuple[str, int]:
        made.append(data)
        return f"{location}: {data.decode()}", len(data)

    place.write_bytes(b"one")
    assert (
        earlier.built_from(str(place), "text", make)
        == storage.built_from(str(place), "text", make)
        == f"{place}: one"
    )
    assert made == [b"one"]
    status = place.stat()
    other = tmp_path / "other"
    other.write_bytes(b"two")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(place)
    assert storage.built_from(str(place), "text", make) == f"{place}: two"
    place.write_bytes(b"three")
    assert storage.built_from(str(place), "text", make) == f"{place}: three"
    place.unlink()
    with pytest.raises(NotFoundError):
        storage.built_from(str(place), "text", make)
    other.write_bytes(b"one")
    place.symlink_to(other)
    with pytest.raises(BadInputError, match="link"):
        storage.built_from(str(place), "text", make)


def test_each_kind_is_built_from_a_file_and_what_is_refused_is_not_kept(
    tmp_path: Path,
) -> None:
    storage, place = Storage(), str(tmp_path / "f")
    storage.write(place, b"x")

    def refuse(_data: bytes, _location: str) -> tuple[str, int]:
        raise CorruptFileError("damaged")

    assert storage.built_from(place, "bytes", lambda data, _: (data, 1)) == b"x"
    for _ in range(2):
        with pytest.raises(CorruptFileError):
            storage.built_from(place, "nothing", refuse)
    assert storage.built_from(place, "length", lambda data, _: (len(data), 1)) == 1


def test_what_is_built_from_large_or_many_files_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "_BUILT_FROM_ONE", 10)
    monkeypatch.setattr(storage_module, "_BUILT_BYTES", 16)
    storage, made = Storage(), list[str]()

    def make(data: bytes, location: str) -> tuple[bytes, int]:
        made.append(location[-1])
        return data, 3

    for name, size in (("a", 8), ("b", 7), ("c", 7), ("d", 1)):
        storage.write(str(tmp_path / name), b"x" * size)
    for _ in range(2):
        for name in "abcd":
            storage.built_from(str(tmp_path / name), "bytes", make)

    assert made == [*"abcd", *"ac"]
