"""Time `lake stats --partitions` against Iceberg Java's `compute_partition_stats`, on copies of one table.

    python tests/bench/partition_stats.py [--files 1000000] [--manifests 1000] [--rounds 3] [--no-java] [--folder DIR]

Whole processes run in turn. Every manifest contains files of all partitions, as those of a streaming writer do. All
files that are written must have the same rows. Memory is the most that the process ever held (VmHWM). Target: five
times as fast as Java, in at most 1 GiB. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402
from support.tables.iceberg_tables import pyiceberg_table  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import made_once, make_wide  # noqa: E402

_CALL = "CALL lake.system.compute_partition_stats('db.t')"


def describe(command: list[str], kept: Path, used: Path, seen: list[list[dict[str, Any]]]) -> Run:
    """Run a command on a copy, and compare the rows of its file with those of the first run."""
    copy_of(kept, used)
    done = run(command)
    (file,) = pyiceberg_table(used).metadata.partition_statistics
    rows = pq.read_table(re.sub("^file:/+", "/", file.statistics_path)).to_pylist()
    seen.append(rows)
    if rows != seen[0]:
        raise SystemExit(f"{command}: the rows are not those of the first run")
    print(f"    {len(rows)} partitions")
    return done


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    chosen = parser_of(__doc__, files=1_000_000, manifests=1_000).parse_args()
    make = partial(make_wide, files=chosen.files, manifests=chosen.manifests)
    kept, used = made_once(chosen.folder, f"made-{chosen.files}-{chosen.manifests}", make)
    commands = {"lake": lake_command(used, "stats", "db.t", "--partitions")}
    if not chosen.no_java:
        commands["java"] = java_command(used, _CALL)
    seen: list[list[dict[str, Any]]] = []
    turns = {
        name: partial(describe, command, kept, used, seen) for name, command in commands.items()
    }
    take_turns(chosen.rounds, turns, ratio=5, peak=1024)


if __name__ == "__main__":
    main()
