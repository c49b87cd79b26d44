"""The file of the run log: several writers, killed writers, full disks, and what is not a log."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
from support.cli.run_logs import entry, logged

from lake.core.base.errors import BadInputError, StorageError
from lake.core.io.storage import flock
from lake.core.maintain.run_log import run_log
from lake.core.maintain.run_log.entries import Entry
from lake.core.maintain.run_log.run_log import RunLog, default_path

LARGEST, LONGEST_LINE = 60_000, 5_000
# Appends entries in a process of its own; a run's id is the process and the number. Renamed logs get more names.
WRITER = """
import os, sys, uuid
from support.cli.run_logs import entry
from lake.core.maintain.run_log import run_log
path, name, count, largest = sys.argv[1:]
rename = os.replace
def keep(source, target):
    os.link(source, f"{target}.{uuid.uuid4()}")
    rename(source, target)
os.replace, run_log._LARGEST = keep, int(largest)
log = run_log.RunLog(path)
for number in range(int(count)):
    log.append(entry(run=f"{name}-{number}", host="h" * (number * 37 % 4000)))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "runs.jsonl"


def runs(path: Path) -> list[str]:
    return [one.run for one in RunLog(str(path)).read().entries]


def write_at_once(path: Path, count: int, largest: int) -> None:
    tests = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": tests}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, name, str(count), str(largest)], env=environment
        )
        for name in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]


def test_lines_of_several_processes_are_whole_and_in_their_order(path: Path) -> None:
    write_at_once(path, 100, 1 << 30)

    read = RunLog(str(path)).read()

    assert read.unreadable == 0
    for name in "abc":
        of_one = [one.run for one in read.entries if one.run.startswith(name)]
        assert of_one == [f"{name}-{number}" for number in range(100)]


def test_several_processes_rename_the_log_once_each_time_that_it_is_too_long(path: Path) -> None:
    """Each renamed log is kept here, where the next one would replace it."""
    write_at_once(path, 60, LARGEST)

    kept = [*path.parent.glob("runs.jsonl.1.*")]
    lines = [line for file in [*kept, path] for line in file.read_text().splitlines()]

    assert Counter(Entry.of_line(line).run for line in lines) == Counter(
        f"{name}-{number}" for name in "abc" for number in range(60)
    )
    assert len(kept) > 1
    assert all(LARGEST < file.stat().st_size <= LARGEST + LONGEST_LINE for file in kept)


def test_a_process_that_waited_while_the_log_was_renamed_writes_into_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(path, entry(run="old"))
    waited = []

    def slow(descriptor: int) -> Iterator[None]:
        if not waited:
            waited.append(descriptor)
            os.replace(path, f"{path}.1")
            logged(path, entry(run="by another process"))
        return flock.locked(descriptor)

    monkeypatch.setattr(run_log, "locked", slow)
    logged(path, entry(run="new"))

    assert runs(path) == ["old", "by another process", "new"]
    assert len(path.read_text().splitlines()) == 2


def test_a_log_that_is_too_long_is_renamed_and_both_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = entry(run="run-00")
    monkeypatch.setattr(run_log, "_LARGEST", 4 * len(one.line()))
    logged(path, *(entry(run=f"run-{number:02}") for number in range(10)))

    # Four lines with their line breaks are too long for four lines without.
    assert runs(path) == [f"run-{number:02}" for number in range(4, 10)]
    assert sorted(file.name for file in path.parent.iterdir()) == ["runs.jsonl", "runs.jsonl.1"]


def test_a_log_that_was_just_renamed_is_found(path: Path) -> None:
    logged(path, entry(run="old"))
    os.replace(path, f"{path}.1")

    read = RunLog(str(path)).read()

    assert (len(read.entries), read.is_found) == (1, True)
    os.link(f"{path}.1", path)
    assert runs(path) == ["old"]


def test_the_end_of_a_file_that_is_much_too_long_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(path, *(entry(run=f"run-{number:02}") for number in range(10)))
    monkeypatch.setattr(run_log, "_MOST_READ", 5 * len(entry(run="run-00").line()))

    read = RunLog(str(path)).read()

    assert [one.run for one in read.entries] == [f"run-{number:02}" for number in range(6, 10)]
    assert read.unreadable == 0


def test_a_half_line_of_a_killed_process_costs_no_other_line(path: Path) -> None:
    logged(path, entry(run="before"))
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole + whole[:length])
        logged(path, entry(run="after"))
        read = RunLog(str(path)).read()
        # Without its line break, a line is whole.
        cut = length < len(whole) - 1
        expected = ["before", "after"] if cut else ["before", "before", "after"]
        assert [one.run for one in read.entries] == expected
        assert read.unreadable == cut


def test_a_disk_that_becomes_full_leaves_the_log_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(path, entry(run="before"))

    class Full(FileIO):
        def write(self, data: object) -> int:
            if self.tell() > len(whole):
                raise OSError(28, "No space left on device")
            return super().write(bytes(memoryview(data)[:10]))  # type: ignore[arg-type]

    whole = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(run_log, "FileIO", Full)
        with pytest.raises(StorageError, match="No space left on device"):
            logged(path, entry(run="lost"))
    assert path.read_bytes() == whole
    logged(path, entry(run="after"))

    assert runs(path) == ["before", "after"]


def test_a_line_that_is_written_in_parts_is_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FileIO):
        def write(self, data: object) -> int:
            return super().write(bytes(memoryview(data)[:10]))  # type: ignore[arg-type]

    monkeypatch.setattr(run_log, "FileIO", Slow)
    logged(path, entry(run="a"), entry(run="b"))

    assert runs(path) == ["a", "b"]


def test_only_the_user_can_read_the_log_and_its_folder(path: Path) -> None:
    before = os.umask(0)
    try:
        logged(path, entry())
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_link_is_followed_and_stays_when_the_log_is_renamed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "disk" / "log"
    path.parent.mkdir()
    path.symlink_to(target)
    monkeypatch.setattr(run_log, "_LARGEST", 1)
    logged(path, entry(run="a"), entry(run="b"))

    assert path.is_symlink()
    assert [file.name for file in target.parent.iterdir()] == ["log.1"]
    assert runs(path) == ["b"]


def test_a_path_without_a_folder_is_in_the_working_folder(tmp_path: Path) -> None:
    RunLog("runs.jsonl").append(entry())

    assert runs(tmp_path / "runs.jsonl") == ["run-1"]


def test_what_is_not_a_file_is_not_written_and_blocks_nothing(path: Path) -> None:
    path.parent.mkdir()
    pipe, loop = path.parent / "pipe", path.parent / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop.name)
    expected = {
        path.parent: BadInputError,
        pipe: BadInputError,
        Path("/dev/null"): BadInputError,
        loop: StorageError,
        pipe / "runs.jsonl": StorageError,
    }
    for place, kind in expected.items():
        log = RunLog(str(place))
        with pytest.raises(kind):
            log.append(entry())
        with pytest.raises(kind):
            log.read()


def test_bytes_that_are_not_text_are_not_an_entry(path: Path) -> None:
    logged(path, entry())
    with path.open("ab") as file:
        file.write(b"\xff\xfe{}\n\n  \n\0\n")

    read = RunLog(str(path)).read()

    assert (len(read.entries), read.unreadable) == (1, 2)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("/var/state", "/var/state/lake/runs.jsonl"),
        ("relative", "/home/me/.local/state/lake/runs.jsonl"),
        ("", "/home/me/.local/state/lake/runs.jsonl"),
        (None, "/home/me/.local/state/lake/runs.jsonl"),
    ],
)
def test_the_default_is_in_the_users_folder_of_state(
    monkeypatch: pytest.MonkeyPatch, state: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)

    assert default_path() == expected
