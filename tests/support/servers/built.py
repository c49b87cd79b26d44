"""Programs for tests that other package managers build, once for each machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.peers.java_peer import CACHE

_LONGEST_BUILD = 600


def by_go(name: str, package: str, version: str) -> Path | str:
    """Return the path of a program; a text about what this machine lacks, if it cannot be built."""
    program = CACHE / f"{name}-{version}"
    if not program.exists() and not shutil.which("go"):
        return "Go"

    def build(folder: Path) -> Path:
        _run(
            ["go", "install", f"{package}@{version}"], {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
        )
        return folder / name

    return _built(program, build)


def by_npm(name: str, version: str) -> Path | str:
    """Return the folder with a package and what it needs; a text about what this machine lacks."""
    target = CACHE / f"{name}-{version}"
    if not shutil.which("node") or not (target.exists() or shutil.which("npm")):
        return "Node.js and npm"

    def build(folder: Path) -> Path:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder))
        _run(["npm", "install", *options, f"{name}@{version}"], {})
        return folder

    return _built(target, build)


def _built(target: Path, build: object) -> Path | str:
    assert callable(build)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            folder = tempfile.mkdtemp(dir=CACHE)
            try:
                build(Path(folder)).rename(target)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                return f"a program that is built: {error}"
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return target


def _run(command: Sequence[str], more: Mapping[str, str]) -> None:
    environment = {**os.environ, **more}
    subprocess.run(
        list(command), check=True, env=environment, stdout=sys.stderr, timeout=_LONGEST_BUILD
    )
