"""PyArrow reads CSV files ahead in a thread of its own, which must not outlive the reading."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lake.core.data.sources.csv import texts
from lake.core.data.sources.discovery import Source
from lake.core.io.storage.storage import Storage

_SLOW = 0.1
_BLOCK = 64 * 1024
# The command line, with a storage that takes long for each block.
_SLOW_COMMAND = """
import sys, time
from contextlib import contextmanager
from lake.core.data.sources.csv import texts
from lake.cli.__main__ import run

class Slow:
    closed = False

    def __init__(self, stream):
        self.stream = stream

    def read(self, size=-1):
        time.sleep(0.3)
        return self.stream.read(size)

@contextmanager
def open_slowly(*arguments):
    with plain(*arguments) as stream:
        yield Slow(stream)

plain = texts.open_stream
texts.open_stream = open_slowly
texts.BLOCK_BYTES = 65536
sys.exit(run())
"""


class Slow:
    """A stream that takes some time for each read; notes which reads are in progress."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.reading = 0
        self.reads = 0

    def read(self, size: int = -1) -> bytes:
        with self._lock:
            self.reading += 1
            self.reads += 1
        time.sleep(_SLOW)
        data = self._stream.read(size)
        with self._lock:
            self.reading -= 1
        return bytes(data)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Slow]:
    """Make files slow; receives each stream that is opened."""
    opened: list[Slow] = []
    plain = texts.open_stream

    @contextmanager
    def open_slowly(*arguments: Any) -> Iterator[Slow]:
        with plain(*arguments) as stream:
            opened.append(Slow(stream))
            yield opened[-1]

    monkeypatch.setattr(texts, "open_stream", open_slowly)
    monkeypatch.setattr(texts, "BLOCK_BYTES", _BLOCK)
    return opened


@pytest.fixture
def source(tmp_path: Path) -> Source:
    path = tmp_path / "x.csv"
    path.write_text("id,text\n" + "".join(f"{number},{'x' * 100}\n" for number in range(10_000)))
    return Source(path=str(path), format="csv", size_bytes=path.stat().st_size)


def first_rows_only(source: Source) -> None:
    rows = texts.text_rows(Storage(), source)
    assert next(rows).batch.num_rows > 0
    rows.close()  # type: ignore[attr-defined]


def names_only(source: Source) -> None:
    assert texts.column_names(Storage(), source) == ["id", "text"]


@pytest.mark.parametrize("read", [first_rows_only, names_only])
def test_a_file_that_is_left_early_is_not_read_any_more(
    slow: list[Slow], source: Source, read: Callable[[Source], None]
) -> None:
    read(source)

    assert [stream.reading for stream in slow] == [0] * len(slow)
    reads = [stream.reads for stream in slow]
    time.sleep(3 * _SLOW)
    assert [stream.reads for stream in slow] == reads


def test_a_dry_run_on_a_slow_storage_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    row = f"1,{'x' * 1000}\n"
    path.write_text("id,text\n" + row * (4 * _BLOCK // len(row)))

    done = subprocess.run(
        [
            *(sys.executable, "-c", _SLOW_COMMAND, "--warehouse", str(tmp_path / "warehouse")),
            *("ingest", "db.t", str(path), "--create", "--dry-run"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
