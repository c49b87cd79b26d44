"""Time `lake delete` against Spark's `DELETE FROM`, whole processes in turn, on copies of one table.

    python tests/bench/delete_rows.py [partition] [scattered] [--rows 10000000] [--files 1000]
                                      [--mode copy-on-write|merge-on-read] [--rounds 3] [--no-java] [--folder DIR]

The table has 100 partitions. `partition` deletes one of them, whole files by metadata alone; `scattered` deletes one
row in a hundred, in every file, in the mode that the table's property `write.delete.mode` has. After each run, the
number of rows must be the same. Target: five times as fast as Spark. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of  # noqa: E402
from shared import (  # noqa: E402
    java_command,
    lake_command,
    parser_of,
)
from support.cli.command_line import CommandLine  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import made_once  # noqa: E402

_PARTITIONS = 100
_FILTERS = {"partition": "part = 17", "scattered": "store = 7"}


def make(warehouse: Path, rows: int, files: int, mode: str) -> None:
    """Make ``db.t``: each load adds a file to every partition."""
    lake = CommandLine(warehouse, engine="inline")
    rng = np.random.default_rng(1)
    loads = max(files // _PARTITIONS, 1)
    per_load = rows // loads
    source = warehouse.parent / "rows.parquet"
    warehouse.parent.mkdir(parents=True, exist_ok=True)
    new = ["--create", "--partition-by", "part", "--property", f"write.delete.mode={mode}"]
    for load in range(loads):
        columns = {
            "id": np.arange(per_load) + load * per_load,
            "part": np.arange(per_load) % _PARTITIONS,
            "store": rng.integers(0, 100, per_load),
            "amount": rng.random(per_load),
        }
        pq.write_table(pa.table(columns), source)
        lake.ok("ingest", "db.t", source, *(new if load == 0 else ()))
    source.unlink()


def delete(command: list[str], kept: Path, used: Path, rows: dict[str, int]) -> Run:
    """Run a command on a copy, and compare the number of rows that are left with that of the first run."""
    copy_of(kept, used)
    done = run(command)
    target = used.parent / "left.parquet"
    target.unlink(missing_ok=True)
    words = ("scan", "db.t", "--select", "id", "--output", str(target))
    left = int(json.loads(run(lake_command(used, *words)).output)["result"]["rows"])
    if rows.setdefault("left", left) != left:
        raise SystemExit(f"{command}: {left} rows are left, not {rows['left']}")
    return done


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = parser_of(__doc__, rows=10_000_000, files=1000)
    parser.add_argument("cases", nargs="*", choices=[*_FILTERS, []], default=[])
    parser.add_argument("--mode", default="copy-on-write")
    chosen = parser.parse_args()
    name = f"made-{chosen.rows}-{chosen.files}-{chosen.mode}"
    made = partial(make, rows=chosen.rows, files=chosen.files, mode=chosen.mode)
    kept, used = made_once(chosen.folder, name, made)
    for case in chosen.cases or _FILTERS:
        where, rows = _FILTERS[case], dict[str, int]()
        copy_of(kept, used)
        commands = {"lake": lake_command(used, "delete", "db.t", "--where", where)}
        if not chosen.no_java:
            commands["spark"] = java_command(used, f"DELETE FROM lake.db.t WHERE {where}")
        turns = {
            name: partial(delete, command, kept, used, rows) for name, command in commands.items()
        }
        print(case)
        take_turns(chosen.rounds, turns, ratio=5)
    shutil.rmtree(used, ignore_errors=True)


if __name__ == "__main__":
    main()
