"""Time `lake clean --delete` against Iceberg Java's `remove_orphan_files`, whole processes in turn, on one table.

    python tests/bench/clean.py [--files 100000] [--orphans 1000] [--rounds 3] [--no-java] [--folder DIR]

The table has one snapshot. Before each run the same orphan files are planted; after it, they must be gone and all
others must be there. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import medians, timed  # noqa: E402
from expire import History, files_left, lake_command, rows_of  # noqa: E402

_OLD = 1_700_000_000
_MANIFEST_FILES = 1000
_CALL = "CALL lake.system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '2025-07-01 00:00:00')"


def make(warehouse: Path, files: int) -> None:
    """Make a table of one snapshot."""
    history = History(warehouse, 1)
    history.make_data_files(files)
    parts = range(0, files, _MANIFEST_FILES)
    made = [
        history.manifest(0, range(first, min(first + _MANIFEST_FILES, files))) for first in parts
    ]
    history.snapshot(0, rows_of(made))
    history.finish()


def plant(warehouse: Path, count: int) -> list[Path]:
    """Write orphan files of an old time beside the data files."""
    folder = next((warehouse / "db").rglob("*.parquet")).parent
    planted = [folder / f"orphan-{number:06d}.parquet" for number in range(count)]
    for path in planted:
        path.write_bytes(b"PAR1" * 25)
        os.utime(path, (_OLD, _OLD))
    return planted


def commands(warehouse: Path) -> dict[str, list[str]]:
    """Return the command lines of the two."""
    peer = HERE.parent / "support/peers/java_peer.py"
    return {
        "lake": lake_command(warehouse, "clean", "db.t", "--delete"),
        "java": [sys.executable, str(peer), str(warehouse), _CALL],
    }


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--orphans", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--folder", help="where to work; the table made there is used again")
    chosen = parser.parse_args()
    folder = Path(chosen.folder or tempfile.mkdtemp(prefix="lake-bench-")).resolve()
    warehouse = folder / "warehouse"
    if not warehouse.exists():
        make(warehouse, chosen.files)
    before = files_left(warehouse)
    seconds: dict[str, list[float]] = {"lake": [], "java": []}
    for _ in range(chosen.rounds):
        for name, command in commands(warehouse).items():
            if name == "java" and chosen.no_java:
                continue
            planted = plant(warehouse, chosen.orphans)
            took, peak, _ = timed(command)
            seconds[name].append(took)
            left = files_left(warehouse) - before + sum(path.exists() for path in planted)
            print(f"{name} {took:.2f} s, peak {peak:.0f} MiB, {left} files too many", flush=True)
    print(json.dumps(medians(seconds)))


if __name__ == "__main__":
    main()
