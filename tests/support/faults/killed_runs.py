"""Runs that stop between two steps: killed, or stopped by a signal, at the point that a test names."""

from __future__ import annotations

import functools
import importlib
import os
import signal
from pathlib import Path
from typing import Any

from lake.cli.main import main
from support.cli.command_line import CommandLine, Result
from support.cli.forked import Forked

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
    ended = signalled(lake, signal.SIGKILL, point, *arguments, location=location)
    assert ended.exit_code == -signal.SIGKILL, ended
    return ended.stderr


def signalled(
    lake: CommandLine,
    number: int,
    point: tuple[str, str, str],
    *arguments: object,
    location: str = "",
) -> Result:
    """Run a command that gets a signal at a point; return how it ended."""
    words = lake.arguments(*arguments)
    return Forked(lake.warehouse.parent, run_mortally, words, point, location, number).end()


def temporary_manifests(folder: Path) -> list[Path]:
    """Return the temporary manifests below a folder."""
    return sorted(folder.rglob("*-00000-0-1-?????.avro"))


def run_mortally(
    arguments: list[str], point: tuple[str, str, str], location: str, number: int = signal.SIGKILL
) -> int:
    """Run a command line of lake in this process, which dies at a point."""
    _let_it_die(*point, location, number)
    return main(arguments)


def _let_it_die(module: str, name: str, moment: str, location: str, number: int) -> None:
    """Replace one function by one that sends its own process a signal, where an argument contains the location."""
    owner: Any = importlib.import_module(module)
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real = getattr(owner, last)

    @functools.wraps(real)
    def deadly(*args: Any, **options: Any) -> Any:
        is_there = location in " ".join(item for item in args if isinstance(item, str))
        if is_there and moment == "before":
            os.kill(os.getpid(), number)
        found = real(*args, **options)
        if is_there:
            os.kill(os.getpid(), number)
        return found

    setattr(owner, last, deadly)
