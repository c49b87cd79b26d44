"""Runs that stop between two steps: killed at the point that a test names."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from support.cli.command_line import CommandLine

# Where a run dies, as code that replaces one function by one that kills its own process.
_SCRIPT = """
import functools, importlib, os, signal, sys
path, name, moment = sys.argv[1:4]
owner = importlib.import_module(path)
*outer, last = name.split(".")
for part in outer:
    owner = getattr(owner, part)
real = getattr(owner, last)

@functools.wraps(real)
def deadly(*args, **options):
    texts = [item for item in args if isinstance(item, str)]
    if os.environ.get("LAKE_TEST_LOCATION", "") not in " ".join(texts):
        return real(*args, **options)
    if moment == "after":
        real(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, last, deadly)
from lake.cli.main import main
sys.exit(main(sys.argv[4:]))
"""
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
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *point, *lake.arguments(*arguments)],
        capture_output=True,
        check=False,
        env={**_environment(), "LAKE_TEST_LOCATION": location},
        cwd=lake.warehouse.parent,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return done.stderr.decode()


def temporary_manifests(folder: Path) -> list[Path]:
    """Return the temporary manifests below a folder."""
    return sorted(folder.rglob("*-00000-0-1-?????.avro"))


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
