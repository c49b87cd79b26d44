"""Locks of workers, held by processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lake.core.engine.spark.worker_locks import end_workers, working

_HOLD = """
import sys, time
from lake.core.engine.spark.worker_locks import working
with working(sys.argv[1]) as wanted:
    print(wanted, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "batch"
    path.mkdir()
    return path


@pytest.fixture
def worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-c", _HOLD, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_worker_that_works_is_killed(worker: subprocess.Popen[str], folder: Path) -> None:
    end_workers(str(folder))

    assert worker.wait(10) == -9


def test_a_worker_that_has_done_its_work_is_let_live(folder: Path) -> None:
    with working(str(folder)) as wanted:
        assert wanted

    end_workers(str(folder))

    assert [path.name for path in folder.iterdir()] == ["stop"]


def test_a_file_left_by_a_dead_worker_kills_no_process(folder: Path) -> None:
    # Another process may have the number by now, even this one.
    (folder / str(os.getpid())).touch()

    end_workers(str(folder))


def test_no_worker_begins_after_the_end(folder: Path) -> None:
    end_workers(str(folder))

    with working(str(folder)) as wanted:
        assert not wanted


def test_without_a_folder_work_goes_on_unwatched() -> None:
    with working("") as wanted:
        assert wanted
