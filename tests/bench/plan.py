"""Time `lake scan --plan` against Iceberg Java's planner, whole processes in turn, on the same table.

    python tests/bench/plan.py [--files 200000] [--rounds 3] [--folder DIR]

The table's files exist in metadata only: planning reads no data. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pyiceberg.schema import Schema  # noqa: E402
from pyiceberg.types import LongType, NestedField  # noqa: E402
from table_support import make_table, open_session  # noqa: E402

from lake.core.table.commit import commit_snapshot  # noqa: E402
from lake.core.table.files import DataFile  # noqa: E402
from lake.core.table.operations import AppendFiles  # noqa: E402

COLUMNS = 15
SCHEMA = Schema(
    *(NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, COLUMNS + 1))
)
PER_COMMIT = 10_000


def make(warehouse: Path, files: int) -> float:
    """Commit so many files with statistics of 15 columns; return the manifest entries per second."""
    make_table(warehouse, schema=SCHEMA, commit__manifest_merge__enabled="false")
    session = open_session(warehouse)
    table = session.table("db.t")
    spent = 0.0
    for begin in range(0, files, PER_COMMIT):
        added = [
            _file(table.data_location, begin + n) for n in range(min(PER_COMMIT, files - begin))
        ]
        started = time.perf_counter()
        operation = AppendFiles(added=added)
        table = commit_snapshot(session, table, operation, operation_id=str(uuid.uuid4())).table
        spent += time.perf_counter() - started
    return files / spent


def _file(folder: str, number: int) -> DataFile:
    ids = range(1, COLUMNS + 1)
    low, high = struct.pack("<q", number * 1000), struct.pack("<q", number * 1000 + 999)
    return DataFile(
        path=f"{folder}/{number:08d}-{uuid.UUID(int=number)}.parquet",
        spec_id=0,
        record_count=1000,
        size_bytes=100_000 + number,
        column_sizes=dict.fromkeys(ids, 6000),
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict.fromkeys(ids, low),
        upper_bounds=dict.fromkeys(ids, high),
        split_offsets=(4,),
    )


def timed(command: list[str]) -> tuple[float, str]:
    """Run a whole process; return its seconds and output."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - started, done.stdout


def main() -> None:
    """Make the table, then let the two take turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        warehouse = (chosen.folder or Path(temporary)).resolve() / "plan-bench"
        rate = make(warehouse, chosen.files)
        print(f"committed {chosen.files} files, {rate:,.0f} entries/s, commits and all")
        lake = [sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--json"]
        lake += ["scan", "db.t", "--plan"]
        java = [sys.executable, str(HERE.parent / "java_peer.py"), str(warehouse), "plan", "db.t"]
        times: dict[str, list[float]] = {"lake": [], "java": []}
        for _ in range(chosen.rounds):
            for name, command in (("lake", lake), ("java", java)):
                seconds, output = timed(command)
                times[name].append(seconds)
                found = json.loads(output)
                files = found["plan"]["files"] if name == "lake" else found["result"]["files"]
                assert files == chosen.files, (name, files)
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, values in times.items():
            print(f"{name}: median {medians[name]:.2f} s of {[round(v, 2) for v in values]}")
        print(f"lake is {medians['java'] / medians['lake']:.1f} times as fast")


if __name__ == "__main__":
    main()
