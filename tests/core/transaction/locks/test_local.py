"""The lock of maintenance runs: one of many takes it, its owner alone removes it, the dead lose it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lake.core.transaction.locks import local
from lake.core.transaction.locks.local import HeldLock, Owner, take, this_process

_GONE = -10 * local.TTL_SECONDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "metadata"
    folder.mkdir()
    return folder / "lake.lock"


def taken(path: Path) -> HeldLock:
    lock = take(str(path), this_process("compact", "op-1"))
    assert isinstance(lock, HeldLock)
    return lock


def aged(path: Path, seconds: float) -> None:
    moment = path.stat().st_mtime + seconds
    os.utime(path, (moment, moment))


def left_by_a_killed_process(path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, sys
        from lake.core.transaction.locks.local import take, this_process
        take(sys.argv[1], this_process("expire", "op-0"))
        os._exit(9)
        """
    )
    subprocess.run([sys.executable, "-c", program, path], check=False)


def without_a_process(path: Path) -> None:
    """Make the lock of a run on another machine, of which it is unknown whether it still runs."""
    lock = taken(path)
    content = {**json.loads(path.read_text()), "process": "elsewhere#1@1", "host": "elsewhere"}
    lock.release()
    path.write_text(json.dumps(content))


def test_a_lock_names_its_owner_and_is_removed_with_it(path: Path) -> None:
    lock = taken(path)
    content = json.loads(path.read_text())
    private = path.stat().st_mode & 0o077
    lock.release()

    assert content["pid"] == os.getpid()
    assert (content["command"], content["operation_id"]) == ("compact", "op-1")
    assert content["host"]
    assert content["heartbeat_ms"] >= content["since_ms"]
    assert content["ttl_seconds"] == local.TTL_SECONDS
    assert private == 0
    assert not path.exists()


def test_a_lock_names_its_owner_from_its_first_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = []

    class Killed(BaseException):
        pass

    def link(*arguments: Any, **named: Any) -> None:
        os_link(*arguments, **named)
        met.append(local.owner_in(path.read_bytes()).operation_id)
        raise Killed

    os_link = os.link
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(Killed):
        taken(path)

    assert met == ["op-1"]
    assert os.listdir(path.parent) == ["lake.lock"]


def test_a_disk_without_nameless_files_has_locks_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(place: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags == local._MAKE_NAMELESS:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return os_open(place, flags, *arguments, **named)

    os_open = os.open
    monkeypatch.setattr(os, "open", opened)
    lock = taken(path)
    owner = take(str(path), this_process("expire", "op-2"))

    assert isinstance(owner, Owner)
    assert owner.operation_id == "op-1"
    lock.release()
    assert os.listdir(path.parent) == []


def test_the_second_process_gets_the_owner_of_the_lock(path: Path) -> None:
    lock = taken(path)
    other = take(str(path), this_process("expire", "op-2"))
    lock.release()

    assert isinstance(other, Owner)
    assert (other.pid, other.command, other.operation_id) == (os.getpid(), "compact", "op-1")


def test_its_heartbeat_keeps_a_lock_young(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "HEARTBEAT_SECONDS", 0.01)
    lock = taken(path)
    aged(path, _GONE)
    old = path.stat().st_mtime
    while path.stat().st_mtime == old:
        pass
    other = take(str(path), this_process("expire", "op-2"))
    lock.release()

    assert isinstance(other, Owner)


def test_the_lock_of_a_killed_process_is_taken_over_at_once(path: Path) -> None:
    left_by_a_killed_process(path)
    before = json.loads(path.read_text())
    lock = taken(path)
    after = json.loads(path.read_text())
    lock.release()

    assert (before["operation_id"], after["operation_id"]) == ("op-0", "op-1")
    assert not path.exists()


@pytest.mark.parametrize("seconds", [_GONE, -_GONE])
def test_a_lock_of_elsewhere_is_taken_over_when_its_time_has_passed(
    path: Path, seconds: float
) -> None:
    without_a_process(path)
    held = take(str(path), this_process("compact", "op-1"))
    aged(path, seconds)
    lock = taken(path)
    lock.release()

    assert isinstance(held, Owner)
    assert held.host == "elsewhere"


def test_a_paused_owner_that_lost_its_lock_leaves_it_to_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = taken(path)
    aged(path, _GONE)
    lock = taken(path)
    paused._beat()
    text = path.read_text()
    paused.release()

    assert path.read_text() == text
    lock.release()
    assert not path.exists()


@pytest.mark.parametrize("leave", [left_by_a_killed_process, without_a_process])
def test_of_many_that_take_over_a_dead_lock_one_wins(
    path: Path, leave: Callable[[Path], None]
) -> None:
    for _ in range(20):
        leave(path) if leave is without_a_process else _dead_copy(path)
        aged(path, _GONE)
        with ThreadPoolExecutor(8) as pool:
            found = list(
                pool.map(lambda _: take(str(path), this_process("compact", "op")), range(8))
            )
        locks = [item for item in found if isinstance(item, HeldLock)]
        for lock in locks:
            lock.release()

        assert len(locks) == 1
        assert not path.exists()


def _dead_copy(path: Path) -> None:
    kept = path.with_suffix(".kept")
    if not kept.exists():
        left_by_a_killed_process(kept)
    path.write_bytes(kept.read_bytes())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"pid": 1}', "[" * 4000, '{"pid": "' + "9" * 5000 + '"}']
)
def test_a_lock_without_an_owner_is_respected_until_it_expires(path: Path, text: str) -> None:
    path.write_text(text)
    found = take(str(path), this_process("compact", "op-1"))
    aged(path, _GONE)
    lock = taken(path)
    lock.release()

    assert found == Owner()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.with_name("elsewhere").write_text("{}")
    path.symlink_to(path.with_name("elsewhere"))


def remove_parent(path: Path) -> None:
    path.parent.rmdir()


@pytest.mark.parametrize("make", [make_folder, make_pipe, make_link, remove_parent])
def test_no_lock_is_taken_where_none_can_be_created(
    path: Path, make: Callable[[Path], None]
) -> None:
    make(path)

    assert take(str(path), this_process("compact", "op-1")) is None
