"""Tables and checkpoints that a real Flink wrote, at the absolute paths that their metadata names.

Each is stored at `ROOT/<name>`. Tests of any process share it for reading; `lent` gives it to one test alone, which
may change it. The next test that takes it gets it as it was packed.

    with shared("a-append") as fixture:
        CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)("scan", fixture.table)
"""

from __future__ import annotations

import datetime as dt
import decimal
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path("/tmp/lake-fixtures")
PACKED = Path(__file__).parents[2] / "fixtures/flink.tgz"
# Longer than any test that borrows a fixture should take.
_WAIT_SECONDS = 600


@dataclass(frozen=True)
class FlinkFixture:
    """One table with its checkpoints and the truth about both."""

    name: str

    @property
    def root(self) -> Path:
        """The folder of its files."""
        return ROOT / self.name

    @property
    def warehouse(self) -> Path:
        """The warehouse's folder."""
        return self.root / "warehouse"

    @cached_property
    def truth(self) -> dict[str, Any]:
        """How it came about and what must be found in it."""
        found = json.loads((self.root / "truth.json").read_text())
        assert isinstance(found, dict)
        return found

    @property
    def table(self) -> str:
        """The table's name."""
        return str(self.truth["table"]["identifier"])

    @property
    def catalog_type(self) -> str:
        """What `--catalog-type` must be."""
        return "hadoop" if self.truth["table"]["catalog"] == "hadoop" else "sql"

    def rows(self, which: str = "committed") -> list[str]:
        """Return the expected rows as canonical text, sorted: ``committed`` now, ``full`` after the replay."""
        with gzip.open(self.root / self.truth[which]["file"], "rt", encoding="utf-8") as lines:
            found = [line.rstrip("\n") for line in lines]
        assert checksum(found) == (self.truth[which]["rows"], self.truth[which]["checksum"])
        return found


def names(*, catalog: str | None = None, deletes: bool | None = None) -> list[str]:
    """Return the fixtures' names, chosen by catalog (``hadoop``, ``jdbc``) and by delete files."""
    tables = {
        name: json.loads(files["truth.json"])["table"] for name, files in sorted(_packed().items())
    }
    return [
        name
        for name, table in tables.items()
        if catalog in {None, table["catalog"]}
        and deletes in {None, bool(table["equality_columns"])}
    ]


@contextmanager
def shared(name: str) -> Iterator[FlinkFixture]:
    """Give a fixture for reading; others may read it at the same time."""
    with _lock(name) as lock:
        while True:
            _take(lock, fcntl.LOCK_SH, name)
            if is_whole(name):
                break
            # A lock cannot be raised: between the two, someone else may repair it as well.
            _take(lock, fcntl.LOCK_EX, name)
            _repair(name)
        yield FlinkFixture(name)


@contextmanager
def lent(name: str) -> Iterator[FlinkFixture]:
    """Give a fixture for writing; no other test has it meanwhile, and afterwards it is as it was."""
    with _lock(name) as lock:
        _take(lock, fcntl.LOCK_EX, name)
        _repair(name)
        try:
            yield FlinkFixture(name)
        finally:
            _repair(name)


def canonical_rows(rows: pa.Table) -> list[str]:
    """Return rows as the fixtures keep them: one JSON array a row, sorted."""
    columns = [column.to_pylist() for column in rows.columns]
    lines = [
        json.dumps([_canonical(cell) for cell in row], ensure_ascii=False, separators=(",", ":"))
        for row in zip(*columns, strict=True)
    ]
    return sorted(lines)


def checksum(lines: Iterable[str]) -> tuple[int, str]:
    """Return the number of canonical rows and a checksum that their order does not change."""
    found = [int.from_bytes(hashlib.sha256(line.encode()).digest()[:8], "big") for line in lines]
    return len(found), f"{sum(found) % 2**64:016x}"


def _canonical(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + ("+00:00" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value


@cache
def _packed() -> dict[str, dict[str, bytes]]:
    """Return the fixtures' files: name of the fixture to path in it to content."""
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(PACKED) as archive:
        for member in archive:
            name, _, path = member.name.removeprefix("./").partition("/")
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None and path:
                found.setdefault(name, {})[path] = file.read()
    return found


@cache
def _written() -> dict[str, dict[str, float]]:
    """Return when the fixtures' files were written, in seconds since 1970: what is old must look old."""
    found: dict[str, dict[str, float]] = {}
    with tarfile.open(PACKED) as archive:
        for member in archive:
            name, _, path = member.name.removeprefix("./").partition("/")
            found.setdefault(name, {})[path] = member.mtime
    return found


def is_whole(name: str) -> bool:
    """Return whether a fixture is unpacked and unchanged."""
    root, files, written = ROOT / name, _packed()[name], _written()[name]
    there = {
        os.path.relpath(os.path.join(folder, file), root)
        for folder, _, below in os.walk(root)
        for file in below
    }
    return there == set(files) and all(
        not (root / path).is_symlink()
        and (root / path).read_bytes() == content
        and int((root / path).stat().st_mtime) == int(written[path])
        for path, content in files.items()
    )


def _repair(name: str) -> None:
    """Unpack a fixture again unless it is unchanged."""
    if is_whole(name):
        return
    shutil.rmtree(ROOT / name, ignore_errors=True)
    for path, content in _packed()[name].items():
        place = ROOT / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        os.utime(place, (_written()[name][path],) * 2)


@contextmanager
def _lock(name: str) -> Iterator[int]:
    folder = ROOT / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield lock
    finally:
        os.close(lock)


def _take(lock: int, kind: int, name: str) -> None:
    # Waiting in the kernel would let two tests that want each other's fixtures wait for ever.
    for _ in range(_WAIT_SECONDS * 20):
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"another test has held the fixture {name} for {_WAIT_SECONDS} s")
