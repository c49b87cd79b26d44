"""Runs commands in processes that can be killed at their n-th call of storage or catalog.

``python -m world.mortal`` imports lake once and forks for each command: requests are lines of JSON on standard
input, responses are lines on standard output. It never runs a command itself, so a fork inherits no threads.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from support.cli.imports import import_all
from support.faults.store_time import store_time_of_commands

from lake.core.base.clock import SystemClock
from lake.core.io.storage.storage import Storage
from lake.core.load.continuous import state
from lake.core.load.continuous.epochs import Epochs
from lake.core.load.continuous.files import disposal
from lake.core.read.continuous.handover import discovered, epochs, hand_over
from lake.core.read.continuous.handover.state import StateStore

BEFORE, AFTER = "before", "after"
_TESTS = Path(__file__).parent.parent
_STALLED_SECONDS = 300


@dataclass(frozen=True)
class End:
    """How a process ended: its exit code, or None if it was killed; its calls; its JSON document."""

    code: int | None
    calls: Sequence[str]
    document: dict[str, Any] | None


def _search_path() -> str:
    """Return the folders of modules: the tests, and what this process was given, e.g. a copy of lake."""
    return os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def _end(answer: Mapping[str, Any]) -> End:
    return End(answer["code"], answer["calls"], answer["document"])


class Mortals:
    """Starts processes; use it as a context manager.

    Args:
        environment: additional variables for them.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment or {}

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "world.mortal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": _search_path(), **self._environment},
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def run(
        self,
        arguments: Sequence[object],
        kill: tuple[int, str] | None = None,
        images: Path | None = None,
        ledger: Path | None = None,
        later_ms: int = 0,
        ask: tuple[int, str] | None = None,
    ) -> End:
        """Run a command; with ``kill``, kill it before or after its n-th call (from 0), or ``ask`` it to end there.

        With ``images``, store in that folder the warehouse as a power cut would leave it after each commit. With
        ``ledger``, a loader moves each epoch of a follow to that folder as soon as it appears. Its clock is
        ``later_ms`` ahead.
        """
        answer = self._ask(
            arguments=[*map(str, arguments)],
            kill=kill,
            ask=ask,
            images=str(images) if images else None,
            ledger=str(ledger) if ledger else None,
            later_ms=later_ms,
        )
        return _end(answer)

    def stop(self, arguments: Sequence[object], point: tuple[int, str]) -> int | End:
        """Run a command up to its n-th call and stop it there; return its process, or how it ended before."""
        answer = self._ask(arguments=[*map(str, arguments)], stop=point)
        stopped = answer.get("stopped")
        return int(stopped) if stopped else _end(answer)

    def wake(self, process: int) -> End:
        """Let a stopped process continue to its end."""
        return _end(self._ask(wake=process))

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer


def serve() -> None:
    import_all()
    importlib.import_module("world.hooks")
    # A process then has these pages in common with its parent.
    gc.freeze()
    asleep: dict[int, int] = {}
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), asleep)), flush=True)


def _answer(request: dict[str, Any], asleep: dict[int, int]) -> dict[str, Any]:
    if process := request.get("wake"):
        reader = asleep.pop(process)
        os.kill(process, signal.SIGCONT)
        return _ending(request, process, reader)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(_STALLED_SECONDS)
        _live(request, writer)
    os.close(writer)
    if request.get("stop"):
        found = os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is not None and found.si_code == os.CLD_STOPPED:
            asleep[child] = reader
            return {"stopped": child}
    return _ending(request, child, reader)


def _ending(request: dict[str, Any], child: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    lines = text.splitlines()
    killed = os.WIFSIGNALED(status)
    if killed and os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError(f"{request} ended by signal {os.WTERMSIG(status)}")
    return {
        "code": None if killed else os.WEXITSTATUS(status),
        "calls": [line for line in lines if not line.startswith("{")],
        "document": next((json.loads(line) for line in lines if line.startswith("{")), None),
    }


def _live(request: dict[str, Any], writer: int) -> None:
    import io

    from lake.cli.main import main

    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    try:
        with redirect_stdout(out), redirect_stderr(err), ExitStack() as stack:
            signals = {
                signal.SIGKILL: request.get("kill"),
                signal.SIGSTOP: request.get("stop"),
                signal.SIGTERM: request.get("ask"),
            }
            words = request["arguments"]
            if later_ms := request.get("later_ms"):
                stack.enter_context(_later(later_ms))
            if request.get("ledger"):
                stack.enter_context(_loading(Path(request["ledger"])))
            # With more files than this, the ledger of a watch is written as one.
            stack.enter_context(patch.object(state, "_MOST_PARTS", 1))
            is_continuous = not {"--follow", "--watch"}.isdisjoint(words)
            stack.enter_context(_counted(signals, writer, system=is_continuous))
            if request.get("images"):
                stack.enter_context(_imaged_steps(Path(request["images"]), words))
            code = main(["--json", *words])
        out.seek(0)
        os.write(writer, json.dumps(json.loads(out.read())).encode() + b"\n")
    except BaseException as error:
        sys.stderr.write(repr(error))
        code = 99
    os._exit(code)


@contextmanager
def _counted(signals: Mapping[int, Any], writer: int, *, system: bool) -> Iterator[None]:
    """Counts calls, reports their names, and sends the process a signal at one of them.

    With ``system``, the system's calls that change folders, or flush, count too.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine.default import DefaultDialect

    from lake.core.io.objects.s3 import S3
    from lake.core.io.storage import atomic_files, moves
    from lake.core.maintain.orphans import trash
    from lake.core.table.catalogs.hadoop import HadoopCatalog
    from lake.core.table.catalogs.rest import BoundedRestCatalog
    from lake.core.table.catalogs.sql import SqlBackend
    from lake.core.transaction.locks import local
    from world import hooks

    count = [0]

    def at(point: list[Any]) -> None:
        for number, wanted in signals.items():
            if wanted == point:
                os.kill(os.getpid(), number)

    def before(kind: str, location: str) -> None:
        number = count[0]
        count[0] += 1
        os.write(writer, f"{kind} {os.path.basename(location)}\n".encode())
        at([number, BEFORE])
        numbers.append(number)

    def after(kind: str, location: str) -> None:
        at([numbers.pop(), AFTER])

    numbers: list[int] = []
    with ExitStack() as stack:
        stack.enter_context(hooks.hooked(before, after))
        for owner, name in (
            (SqlCatalog, "commit_table"),
            (SqlCatalog, "load_table"),
            (SqlCatalog, "_write_metadata"),
            (SqlCatalog, "create_namespace_if_not_exists"),
            (SqlBackend, "drop"),
            *((SqlCatalog, name) for name in _ENTRIES),
            (DefaultDialect, "do_commit"),
            (HadoopCatalog, "commit_table"),
            (HadoopCatalog, "load_table"),
            (HadoopCatalog, "create_namespace"),
            (BoundedRestCatalog, "commit_table"),
            (BoundedRestCatalog, "load_table"),
            *((BoundedRestCatalog, name) for name in ("drop_table", *_ENTRIES)),
            *((S3, name) for name in ("put", "create", "delete", "remove", "abort_uploads")),
            (moves, "_copy"),
            (atomic_files, "_write"),
            (atomic_files, "_link"),
            (disposal, "move"),
            (trash, "move"),
            (trash, "_remove_folders"),
            (local, "take"),
            (local.HeldLock, "release"),
            *(_SYSTEM if system else ()),
        ):
            stack.enter_context(
                patch.object(owner, name, _around(getattr(owner, name), name, before, after))
            )
        if system:
            # A store deletes several objects with one request.
            removing = _around(Storage.delete, "remove", before, after)
            stack.enter_context(patch.object(Storage, "delete", removing))
        yield


_ENTRIES = ("rename_table", "register_table")
_SYSTEM = (
    *((os, name) for name in ("mkdir", "rename", "replace", "fsync", "unlink", "link")),
    (shutil, "rmtree"),
    (epochs, "_rename"),
    (hand_over, "commit_epoch"),
    (StateStore, "save"),
    (discovered, "write_splits"),
    (discovered, "save_keys"),
    (state.StateStore, "save"),
    (Epochs, "_load"),
)
# The steps after which a power cut is simulated.
_FOLLOWING = ((StateStore, "save"), (epochs, "_rename"), (hand_over, "write_epoch"))
_WATCHING = ((state.StateStore, "save"), (Epochs, "_load"), (disposal, "move"))


@contextmanager
def _later(later_ms: int) -> Iterator[None]:
    """Let lake run later, and the store too."""
    real = SystemClock.now_ms
    with (
        patch.object(SystemClock, "now_ms", lambda clock: real(clock) + later_ms),
        store_time_of_commands(),
    ):
        yield


@contextmanager
def _loading(ledger: Path) -> Iterator[None]:
    """Move each epoch to a ledger at the moment when it appears."""
    real = os.rename

    def rename(source: str, target: str) -> None:
        real(source, target)
        if os.path.basename(target).startswith("epoch-"):
            real(target, ledger / os.path.basename(target))

    with patch.object(os, "rename", rename):
        yield


@contextmanager
def _imaged(images: Path, root: Path, steps: Sequence[tuple[Any, str]]) -> Iterator[None]:
    """Record what a power cut would leave of a folder after each of some calls."""
    from world.power import Disk

    disk = Disk(root, trusted="catalog.db")
    numbers = itertools.count()

    def nothing(_kind: str, _location: str) -> None:
        pass

    def copy(_kind: str, _location: str) -> None:
        disk.copy(images / f"{next(numbers):04d}")

    with ExitStack() as stack:
        stack.enter_context(disk.watched())
        for owner, name in steps:
            real = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, _around(real, name, nothing, copy)))
        yield


def _imaged_steps(images: Path, words: Sequence[str]) -> AbstractContextManager[None]:
    """Record what a power cut would leave: of a follow also its state and output, beside the warehouse."""
    from pyiceberg.catalog.sql import SqlCatalog

    from lake.core.table.catalogs.hadoop import HadoopCatalog

    warehouse = Path(words[words.index("--warehouse") + 1])
    if "--follow" in words:
        return _imaged(images, warehouse.parent, _FOLLOWING)
    commits = [(owner, "commit_table") for owner in (SqlCatalog, HadoopCatalog)]
    return _imaged(images, warehouse, [*commits, *(_WATCHING if "--watch" in words else ())])


def _around(real: Any, name: str, before: Any, after: Any) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        before(name, name)
        try:
            return real(*arguments, **named)
        finally:
            after(name, name)

    return staticmethod(call) if name == "_write_metadata" else call


if __name__ == "__main__":
    serve()
