"""Processes that find lake imported, which is most of the time of a short command: each is forked from one that has.

``python -m support.cli.forked`` imports lake once and forks for each run: requests are lines of JSON on standard
input, responses are lines on standard output. It runs no command itself, so a fork inherits no threads.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn

from lake.cli.main import main
from support.cli.command_line import CommandLine, Result
from support.cli.imports import import_all

_TESTS = Path(__file__).parents[2]


class Forked:
    """A process that runs one function and exits with what it returns.

    Args:
        folder: where it runs, in the present environment.
        function: a function of a module.
        arguments: its arguments, as JSON.
    """

    def __init__(self, folder: Path, function: Callable[..., int], *arguments: Any) -> None:
        request = {
            "function": [function.__module__, function.__name__],
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": str(folder),
        }
        self.process: int = _ask(request)["process"]

    def send_signal(self, number: int) -> None:
        """Send it a signal; only before `end`."""
        os.kill(self.process, number)

    def end(self) -> Result:
        """Wait for its end; the exit code of one that a signal ended is the negative signal."""
        return Result(**_ask({"end": self.process}))


def started(lake: CommandLine, *arguments: object) -> Forked:
    """Start a command as a process of its own; the caller ends it."""
    return Forked(lake.warehouse.parent, main, lake.arguments(*arguments))


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer: dict[str, Any] = json.loads(server.stdout.readline())
    return answer


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the server, which ends when this process does, as its input ends then."""
    return subprocess.Popen(
        [sys.executable, "-m", "support.cli.forked"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_TESTS,
        # A signal of the terminal is for the tests.
        start_new_session=True,
    )


def _serve() -> None:
    import_all()
    # A process then has these pages in common with its parent.
    gc.freeze()
    outputs: dict[int, tuple[IO[bytes], IO[bytes]]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if process := request.get("end"):
            answer = _ended(process, *outputs.pop(process))
        else:
            streams = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
            process = os.fork()
            if process == 0:
                _run(request, *(stream.fileno() for stream in streams))
            outputs[process] = streams
            answer = {"process": process}
        print(json.dumps(answer), flush=True)


def _ended(process: int, out: IO[bytes], err: IO[bytes]) -> dict[str, Any]:
    _, status = os.waitpid(process, 0)
    written = []
    for stream in (out, err):
        with stream:
            stream.seek(0)
            written.append(stream.read().decode(errors="replace"))
    code = os.waitstatus_to_exitcode(status)
    return {"exit_code": code, "stdout": written[0], "stderr": written[1]}


def _run(request: dict[str, Any], out: int, err: int) -> NoReturn:
    """Run a function as if the process had been started for that."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        # Known to this process from the server's environment.
        tempfile.tempdir = None
        random.seed()
        module, name = request["function"]
        code = getattr(importlib.import_module(module), name)(*request["arguments"])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    os._exit(code)


if __name__ == "__main__":
    _serve()
