"""The change log of many upserts: lake's `scan --follow --changes` and Spark's changelog procedure, in one run.

    python tests/bench/follow_changes.py [--upserts 200] [--rows 10000] [--changed 100] [--rounds 1] [--no-java]

Each upsert replaces some rows of a table, copy on write, because Iceberg's changelog procedure does not read delete
files. Both write all changes to Parquet files and are whole processes. `--append` makes commits that only add rows.
Prints, per round and as medians, seconds and the ratio, and whether both found the same number of changes.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from appends import make_appends  # noqa: E402
from compact import medians, timed  # noqa: E402
from shared import lake_command, parser_of  # noqa: E402
from support.peers.java_peer import session  # noqa: E402
from support.tables.iceberg_tables import make_table  # noqa: E402


def rows_of(ids: np.ndarray, version: int) -> pa.Table:
    """Return rows with the version in their name."""
    names = np.char.add(f"v{version}-", ids.astype(str))
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names)})


def make(warehouse: Path, upserts: int, rows: int, changed: int, *, append: bool) -> None:
    """Make ``db.t``: an append of all rows, then one transaction an upsert."""
    if append:
        later = (range(each * rows, each * rows + changed) for each in range(1, upserts + 1))
        make_appends(warehouse, [range(rows), *later])
        return
    table = make_table(warehouse)
    table.append(rows_of(np.arange(rows), 0))
    for number in range(1, upserts + 1):
        start = number * changed % rows
        end = min(start + changed, rows)
        replaced = rows_of(np.arange(start, end), number)
        table.overwrite(replaced, And(GreaterThanOrEqual("id", start), LessThan("id", end)))


def spark(warehouse: str, output: str) -> None:
    """Write all changes by Iceberg's procedure."""
    started = session(warehouse)
    call = "CALL lake.system.create_changelog_view(table => 'db.t', changelog_view => 'changes')"
    started.sql(call)
    started.table("changes").write.parquet(output)


def count(folder: Path) -> int:
    """Return the number of rows below a folder."""
    files = [path for path in folder.rglob("*.parquet") if path.stat().st_size]
    return sum(pq.read_metadata(path).num_rows for path in files)


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, rounds=1, upserts=200, rows=10_000, changed=100)
    parser.add_argument("--append", action="store_true", help="commits that only add rows")
    parser.add_argument("--only-make", action="store_true", help="make the table, and end")
    chosen = parser.parse_args()
    folder = chosen.folder
    kind = "appends" if chosen.append else "upserts"
    used = folder / f"warehouse-{kind}-{chosen.upserts}-{chosen.rows}-{chosen.changed}"
    if not used.exists():
        make(used, chosen.upserts, chosen.rows, chosen.changed, append=chosen.append)
    if chosen.only_make:
        return
    ours, theirs, state = (folder / name for name in ("ours", "theirs", "state"))
    words = ("scan", "db.t", "--follow", "--changes", "--once", "--start", "earliest")
    lake = lake_command(used, *words, "--state", str(state), "--output", str(ours))
    java = [sys.executable, __file__, "spark", str(used), str(theirs)]
    seconds: dict[str, list[float]] = {"lake": [], "java": []}
    for _ in range(chosen.rounds):
        for path in (ours, theirs, state):
            shutil.rmtree(path, ignore_errors=True)
        took, peak, output = timed(lake)
        seconds["lake"].append(took)
        result = json.loads(output)["result"]
        counts = {name: result[name] for name in ("epochs", "rows", "files")}
        print(f"lake {took:.2f} s, peak {peak:.0f} MiB, {counts}", flush=True)
        if chosen.no_java:
            continue
        took, _, _ = timed(java)
        seconds["java"].append(took)
        print(f"java {took:.2f} s, changes {count(ours)} and {count(theirs)}", flush=True)
    print(json.dumps(medians(seconds)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["spark"]:
        spark(*sys.argv[2:])
    else:
        main()
