"""A continuous scan of many appends, side by side with Spark's readStream of Iceberg Java, alternating in one run.

    python tests/bench/follow.py [--appends 500] [--rows 20000] [--rounds 3] [--no-java] [--folder DIR]

Both are whole processes that read all appends of one table into Parquet files (`--once`, `availableNow`), and then
run again, when nothing is new. `--appends 5000 --rows 1` measures the discovery. Prints, per round and as medians,
seconds and the ratio, lake's peak memory, the time to import what `lake` needs in any case, and whether both wrote
the same number of rows and the same sum.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from appends import make_appends  # noqa: E402
from compact import medians, timed  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402

_IMPORTS = "import lake.cli.main, lake.commands.scan, pyarrow.parquet, pyiceberg.catalog.sql"


def make(warehouse: Path, appends: int, rows: int) -> None:
    """Make ``db.t`` with one file an append."""
    make_appends(warehouse, (range(each * rows, (each + 1) * rows) for each in range(appends)))


def rows_and_sum(folder: Path) -> tuple[int, int]:
    """Return the number of rows below a folder, and the sum of their ids."""
    files = [path for path in folder.rglob("*.parquet") if path.stat().st_size]
    columns = [pq.read_table(path, columns=["id"], partitioning=None)["id"] for path in files]
    return sum(map(len, columns)), sum(int(np.sum(column.to_numpy())) for column in columns)


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, appends=500, rows=20_000)
    parser.add_argument("--only-make", action="store_true", help="make the table, and end")
    arguments = parser.parse_args()
    folder = arguments.folder
    used = folder / f"warehouse-{arguments.appends}-{arguments.rows}"
    if not used.exists():
        make(used, arguments.appends, arguments.rows)
    if arguments.only_make:
        return
    ours, theirs, state, checkpoint = (
        folder / name for name in ("ours", "theirs", "state", "checkpoint")
    )
    words = ("scan", "db.t", "--follow", "--once", "--start", "earliest")
    lake = lake_command(used, *words, "--state", str(state), "--output", str(ours))
    java = java_command(used, "stream", "db.t", str(theirs), str(checkpoint))
    everything: dict[str, list[float]] = {"lake": [], "java": []}
    nothing: dict[str, list[float]] = {"lake": [], "java": []}
    floors, peaks = [], []
    for _ in range(arguments.rounds):
        for path in (ours, theirs, state, checkpoint):
            shutil.rmtree(path, ignore_errors=True)
        floors.append(timed([sys.executable, "-c", _IMPORTS])[0])
        took, peak, output = timed(lake)
        again, _, _ = timed(lake)
        everything["lake"].append(took)
        nothing["lake"].append(again)
        peaks.append(peak)
        result = json.loads(output)["result"]
        counts = {name: result[name] for name in ("epochs", "rows", "files")}
        print(f"lake {took:.2f} s, again {again:.2f} s, peak {peak:.0f} MiB, {counts}", flush=True)
        if arguments.no_java:
            continue
        took, _, _ = timed(java)
        again, _, _ = timed(java)
        everything["java"].append(took)
        nothing["java"].append(again)
        same = rows_and_sum(ours) == rows_and_sum(theirs)
        print(f"java {took:.2f} s, again {again:.2f} s, the same rows: {same}", flush=True)
    found = {
        "all": medians(everything),
        "nothing_new": medians(nothing),
        "imports": round(sorted(floors)[len(floors) // 2], 2),
        "peak_mib": round(max(peaks)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
