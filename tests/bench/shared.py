"""What benchmarks share: their options, and the command lines that they run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

_PEER = Path(__file__).resolve().parents[1] / "support/peers/java_peer.py"


def parser_of(
    description: str | None, *, rounds: int = 3, java: bool = True, **counts: int
) -> argparse.ArgumentParser:
    """Return the parser of a benchmark.

    Args:
        description: what it compares.
        rounds: how often each program runs by default.
        java: whether it compares with a JVM, so that it has an option to leave that out.
        counts: options that are numbers, with their defaults.
    """
    parser = argparse.ArgumentParser(description=description)
    for name, default in {**counts, "rounds": rounds}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    if java:
        parser.add_argument("--no-java", action="store_true")
    parser.add_argument(
        "--folder",
        type=_folder,
        default=str(Path(tempfile.gettempdir(), f"lake-bench-{os.getpid()}")),
        help="where to work; what was made there is used again",
    )
    return parser


def _folder(text: str) -> Path:
    path = Path(text).resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def lake_command(warehouse: Path, *arguments: str) -> list[str]:
    """Return a command line of lake's."""
    start = [sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--json"]
    return [*start, *arguments]


def java_command(warehouse: Path, *words: str) -> list[str]:
    """Return the command line of statements of Iceberg Java's, or of another of the peer's jobs."""
    return [sys.executable, str(_PEER), str(warehouse), *words]
