"""Runs that stop between two steps: killed at the point that a test names.

``python -m support.faults.killed_runs`` imports lake once and forks for each run: requests are lines of JSON on
standard input, responses are lines on standard output. It runs no command itself, so a fork inherits no threads.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from support.cli.command_line import CommandLine
from support.cli.imports import import_all

_TESTS = Path(__file__).parents[2]
LAYING_DOWN = ("lake.core.transaction.staging.operation_files", "publish_manifests", "before")
BETWEEN = ("lake.core.io.storage.storage", "Storage.write", "after")
SENDING = ("lake.core.table.catalogs.catalog", "Table.send", "before")
SENT = ("lake.core.table.catalogs.catalog", "Table.send", "after")


def killed(
    lake: CommandLine, point: tuple[str, str, str], *arguments: object, location: str = ""
) -> str:
    """Run a command that dies by SIGKILL at a point; at one that is passed often, where a name is touched.

    Returns:
        What it had printed to standard error.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    request = {
        "point": point,
        "location": location,
        "arguments": lake.arguments(*arguments),
        "environment": dict(os.environ),
        "folder": str(lake.warehouse.parent),
    }
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    assert answer["signal"] == signal.SIGKILL, answer["printed"]
    printed: str = answer["printed"]
    return printed


def temporary_manifests(folder: Path) -> list[Path]:
    """Return the temporary manifests below a folder."""
    return sorted(folder.rglob("*-00000-0-1-?????.avro"))


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the server, which ends when this process does, as its input ends then."""
    return subprocess.Popen(
        [sys.executable, "-m", "support.faults.killed_runs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_TESTS,
        # A signal of the terminal is for the tests.
        start_new_session=True,
    )


def _serve() -> None:
    import_all()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _run(request, writer)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with open(reader, encoding="utf-8", errors="replace") as file:
        printed = file.read()
    _, status = os.waitpid(child, 0)
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None, "printed": printed}


def _run(request: Mapping[str, Any], errors: int) -> NoReturn:
    """Run a command in a process of its own, as if it had been started for that."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, target in ((nothing, 0), (nothing, 1), (errors, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    random.seed()
    _let_it_die(*request["point"], request["location"])
    from lake.cli.main import main

    os._exit(main(request["arguments"]))


def _let_it_die(module: str, name: str, moment: str, location: str) -> None:
    """Replace one function by one that kills its own process, where an argument contains the location."""
    owner: Any = importlib.import_module(module)
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real = getattr(owner, last)

    @functools.wraps(real)
    def deadly(*args: Any, **options: Any) -> Any:
        is_there = location in " ".join(item for item in args if isinstance(item, str))
        if is_there and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*args, **options)
        if is_there:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, last, deadly)


if __name__ == "__main__":
    _serve()
