"""Copies of lake that lack one safety check each: the tests must detect every one of them.

``cd tests && python -m soak.mutants`` runs all, ``… mutants PART`` those whose names contain a text, and
``--processes 2`` two at a time. A copy that passes its tests is reported, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from soak.markers import MarkedCode, markers
from soak.removed_checks import CHECKS, RemovedCheck

_ROOT = Path(__file__).parents[2]
_SOURCES = ("cli", "commands", "core")
_COPIED = (*_SOURCES, "tests", "completions", "__init__.py", "pyproject.toml", "README.md")
_FAILED, _SECONDS = 1, 900
# The signals of a library that does not check what it reads.
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)


def main(part: str = "", processes: int = 1) -> int:
    """Run the checks whose names contain a text, some at a time; return the exit code."""
    chosen = [check for check in CHECKS if part in check.name]
    marked = marked_code()
    with tempfile.TemporaryDirectory(prefix="lake-mutants-") as folder:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(processes):
            copies.put(copied(Path(folder, str(number))))

        def survives(check: RemovedCheck) -> bool:
            started, copy = time.monotonic(), copies.get()
            try:
                caught, detail = _caught(copy, check, *marked[check.name])
            finally:
                copies.put(copy)
            seconds = time.monotonic() - started
            print(
                f"{'caught' if caught else 'SURVIVED'} {check.name} ({detail}, {seconds:.0f} s)",
                flush=True,
            )
            return not caught

        with ThreadPoolExecutor(processes) as pool:
            survived = sum(pool.map(survives, chosen))
    print(f"{len(chosen)} mutants, {survived} survived")
    return 1 if survived or not chosen else 0


def copied(folder: Path) -> Path:
    """Copy lake and its tests into a new folder, and return it.

    Raises:
        RuntimeError: its tests run other code.
    """
    folder.mkdir()
    for name in _COPIED:
        source = _ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    check_imports(folder)
    return folder


def check_imports(copy: Path) -> None:
    """Import lake as the tests of a copy do: what the copy lacks is found in the installed tree.

    Raises:
        RuntimeError: they run other code.
    """
    names = ["lake", *(f"lake.{source}" for source in _SOURCES)]
    files = ", ".join(f"{name}.__file__" for name in names)
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(names)}; print({files}, sep='\\n')"],
        cwd=copy,
        env=_environment(copy),
        capture_output=True,
        text=True,
        check=False,
    )
    found = [Path(line).resolve() for line in done.stdout.splitlines()]
    if not found or not all(file.is_relative_to(copy.resolve()) for file in found):
        raise RuntimeError(f"the tests of a copy run other code: {done.stdout}{done.stderr}")


def _environment(copy: Path) -> dict[str, str]:
    # PYTHONPATH takes precedence over the installed packages. Property tests try all of their examples.
    added = {
        "PYTHONPATH": str(copy / "tests/typing"),
        "PYTHONDONTWRITEBYTECODE": "",
        "LAKE_SOAK": "1",
    }
    return {**os.environ, **added}


def marked_code(root: Path = _ROOT) -> dict[str, tuple[Path, MarkedCode]]:
    """Return what each marker marks, and its file below the root.

    Raises:
        ValueError: a name is marked in two places.
    """
    found: dict[str, tuple[Path, MarkedCode]] = {}
    for path in (path for source in _SOURCES for path in (root / source).rglob("*.py")):
        for name, code in markers(path.read_text()):
            if name in found:
                raise ValueError(f"{name} is marked in {found[name][0]} and {path}")
            found[name] = path.relative_to(root), code
    return found


def _caught(copy: Path, check: RemovedCheck, file: Path, code: MarkedCode) -> tuple[bool, str]:
    """Run a check's tests without it; return whether one failed, and which."""
    _write(copy / file, check.edit(code))
    try:
        return _tested(copy, check)
    finally:
        _write(copy / file, code.text)


def _write(source: Path, text: str) -> None:
    source.write_text(text)
    # The text before may have had the same size in the same second: its bytecode would count.
    Path(importlib.util.cache_from_source(str(source))).unlink(missing_ok=True)


def _tested(copy: Path, check: RemovedCheck) -> tuple[bool, str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-x",
        "-q",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
    ]
    try:
        done = subprocess.run(
            [*command, *check.tests],
            cwd=copy,
            env=_environment(copy),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode == _FAILED and failures:
        return True, failures[0].split(" - ")[0].removeprefix("FAILED ")
    if -done.returncode in _CRASHES:
        return True, f"it ends with signal {-done.returncode}"
    return False, (done.stdout.splitlines() or ["no output"])[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--processes", type=int, default=1)
    sys.exit(main(**vars(parser.parse_args())))
