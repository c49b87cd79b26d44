"""Runs that stop between two steps: killed at the point that a test names."""

from __future__ import annotations

import functools
import importlib
import os
import signal
from pathlib import Path
from typing import Any

from lake.cli.main import main
from support.cli.command_line import CommandLine
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
    folder, words = lake.warehouse.parent, lake.arguments(*arguments)
    ended = Forked(folder, run_mortally, words, point, location).end()
    assert ended.exit_code == -signal.SIGKILL, ended
    return ended.stderr


def temporary_manifests(folder: Path) -> list[Path]:
    """Return the temporary manifests below a folder."""
    return sorted(folder.rglob("*-00000-0-1-?????.avro"))


def run_mortally(arguments: list[str], point: tuple[str, str, str], location: str) -> int:
    """Run a command line of lake in this process, which dies at a point."""
    _let_it_die(*point, location)
    return main(arguments)


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
