"""Runs commands in processes that can be killed at their n-th call of storage or catalog.

``python -m world.mortal`` imports lake once and forks for each command: requests are lines of JSON on standard
input, responses are lines on standard output. It never runs a command itself, so a fork inherits no threads.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

BEFORE, AFTER = "before", "after"
_TESTS = Path(__file__).parent.parent
_STALLED_SECONDS = 300


@dataclass(frozen=True)
class End:
    """How a process ended: its exit code, or None if it was killed; its calls; its JSON document."""

    code: int | None
    calls: Sequence[str]
    document: dict[str, Any] | None


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
            env={**os.environ, "PYTHONPATH": str(_TESTS), **self._environment},
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
    ) -> End:
        """Run a command; with ``kill``, kill it before or after its n-th call (from 0).

        With ``images``, store in that folder the warehouse as a power cut would leave it after each commit.
        """
        answer = self._ask(
            arguments=[*map(str, arguments)], kill=kill, images=str(images) if images else None
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
    for verb in ("ingest", "compact", "expire", "replay"):
        importlib.import_module(f"lake.commands.{verb}")
    for name in ("lake.cli.main", "pyiceberg.catalog.sql", "datafusion", "pyarrow.parquet"):
        importlib.import_module(name)
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
            signals = {signal.SIGKILL: request.get("kill"), signal.SIGSTOP: request.get("stop")}
            stack.enter_context(_counted(signals, writer))
            if request.get("images"):
                stack.enter_context(_imaged(Path(request["images"]), request["arguments"]))
            code = main(["--json", *request["arguments"]])
        out.seek(0)
        os.write(writer, json.dumps(json.loads(out.read())).encode() + b"\n")
    except BaseException as error:
        sys.stderr.write(repr(error))
        code = 99
    os._exit(code)


@contextmanager
def _counted(signals: Mapping[int, Any], writer: int) -> Iterator[None]:
    """Counts calls, reports their names, and sends the process a signal at one of them."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine.default import DefaultDialect

    from lake.core.catalogs.hadoop import HadoopCatalog
    from lake.core.locks import local
    from lake.core.storage import atomic_files
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
            (DefaultDialect, "do_commit"),
            (HadoopCatalog, "commit_table"),
            (HadoopCatalog, "load_table"),
            (HadoopCatalog, "create_namespace"),
            (atomic_files, "_write"),
            (atomic_files, "_link"),
            (local, "take"),
            (local.HeldLock, "release"),
        ):
            stack.enter_context(
                patch.object(owner, name, _around(getattr(owner, name), name, before, after))
            )
        yield


@contextmanager
def _imaged(images: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Record what a power cut would leave of the warehouse after each commit."""
    from pyiceberg.catalog.sql import SqlCatalog

    from lake.core.catalogs.hadoop import HadoopCatalog
    from world.power import Disk

    disk = Disk(Path(arguments[arguments.index("--warehouse") + 1]), trusted="catalog.db")
    numbers = itertools.count()

    def nothing(_kind: str, _location: str) -> None:
        pass

    def copy(_kind: str, _location: str) -> None:
        disk.copy(images / str(next(numbers)))

    with ExitStack() as stack:
        stack.enter_context(disk.watched())
        for owner in (SqlCatalog, HadoopCatalog):
            real = owner.commit_table
            stack.enter_context(
                patch.object(owner, "commit_table", _around(real, "commit_table", nothing, copy))
            )
        yield


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
