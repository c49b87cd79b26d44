"""Copies of lake that lack one safety check each: the tests must detect every one of them.

``cd tests && python -m soak.mutants`` runs all, ``… mutants PART`` those whose names contain a text. A copy that
passes its tests is reported, and the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from soak.markers import MarkedCode, markers
from soak.removed_checks import CHECKS, RemovedCheck

_ROOT = Path(__file__).parents[2]
_SOURCES = ("cli", "commands", "core")
_COPIED = (*_SOURCES, "tests", "completions", "pyproject.toml", "README.md")
_FAILED, _SECONDS = 1, 900


def main(part: str = "") -> int:
    """Run the checks whose names contain a text; return the exit code."""
    chosen = [check for check in CHECKS if part in check.name]
    marked = marked_code()
    survived = []
    with tempfile.TemporaryDirectory(prefix="lake-mutants-") as folder:
        copy = _copied(Path(folder))
        for check in chosen:
            started = time.monotonic()
            caught, detail = _caught(copy, check, *marked[check.name])
            seconds = time.monotonic() - started
            print(f"{'caught' if caught else 'SURVIVED'} {check.name} ({detail}, {seconds:.0f} s)")
            sys.stdout.flush()
            survived += [] if caught else [check.name]
    print(f"{len(chosen)} mutants, {len(survived)} survived")
    return 1 if survived or not chosen else 0


def _copied(folder: Path) -> Path:
    for name in _COPIED:
        source = _ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


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
    (copy / file).write_text(check.edit(code))
    try:
        return _tested(copy, check)
    finally:
        (copy / file).write_text(code.text)


def _tested(copy: Path, check: RemovedCheck) -> tuple[bool, str]:
    # PYTHONPATH takes precedence over the installed packages.
    env = {**os.environ, "PYTHONPATH": str(copy / "tests/typing"), "PYTHONDONTWRITEBYTECODE": "1"}
    # Property tests run as many examples as on CI.
    env["LAKE_SOAK"] = "1"
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
            env=env,
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
    return False, (done.stdout.splitlines() or ["no output"])[-1]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
