"""Reading a table with a tenth of its rows deleted, against the same table without deletes, in turn.

    python tests/bench/scan_deletes.py [--files 300] [--rows 20000] [--rounds 3] [--engine inline]

Both are read whole to a folder of Parquet files; prints the seconds of each whole process and their ratio.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compact import delete_rows, make_files, timed
from shared import lake_command


def main() -> None:
    """Make both tables, then read them in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", default="inline")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lake-bench-") as temporary:
        folder = Path(temporary)
        for name in ("plain", "deletes"):
            make_files(folder / name, chosen.files, chosen.rows)
        delete_rows(folder / "deletes", chosen.files, chosen.rows)
        seconds: dict[str, list[float]] = {"plain": [], "deletes": []}
        for _ in range(chosen.rounds):
            for name, taken in seconds.items():
                output = folder / "output"
                shutil.rmtree(output, ignore_errors=True)
                words = ("--engine", chosen.engine, "scan", "db.t", "--output", str(output))
                took, peak, printed = timed(lake_command(folder / name, *words))
                taken.append(took)
                rows = json.loads(printed)["result"]["rows"]
                print(f"{name} {took:.2f} s, peak {peak:.0f} MiB, {rows:,} rows", flush=True)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    print(f"with deletes {medians['deletes'] / medians['plain']:.2f} times the time without")


if __name__ == "__main__":
    main()
