"""Time `lake expire-partitions` against Spark's `DELETE FROM`, whole processes in turn, on copies of one table.

    python tests/bench/expire_partitions.py [--files 40000] [--manifests 200] [--rounds 3] [--no-java] [--folder DIR]

The table has 400 daily partitions, and about half of its files are in those that are removed. Both remove whole files
by metadata alone. After each run, the files that are left must be the same. Target: five times as fast as Spark.
Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of  # noqa: E402
from rewrite_manifests import entries_of  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import made_once, make_wide  # noqa: E402

# The partitions are some of the 400 days from 2022-01-08.
_LIMIT = "2022-07-27"
_DAY = 19_200
_DELETE = f"DELETE FROM lake.db.t WHERE ts < TIMESTAMP_NTZ '{_LIMIT} 00:00:00'"


def days_of(entries: pa.Table) -> pa.ChunkedArray:
    """Return the partition of each entry, in days since 1970."""
    return pc.struct_field(entries["partition"], 0).cast(pa.int32())


def expire(command: list[str], kept: Path, used: Path, paths: pa.ChunkedArray) -> Run:
    """Run a command on a copy, and check what it left."""
    copy_of(kept, used)
    done = run(command)
    if not entries_of(used)["file_path"].equals(paths):
        raise SystemExit(f"{command}: other files are left than those of the newer days")
    return done


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    chosen = parser_of(__doc__, files=40_000, manifests=200).parse_args()
    make = partial(make_wide, files=chosen.files, manifests=chosen.manifests)
    kept, used = made_once(chosen.folder, f"made-{chosen.files}-{chosen.manifests}", make)
    copy_of(kept, used)
    before = entries_of(used)
    stays = pc.greater_equal(days_of(before), _DAY)
    paths = before["file_path"].filter(stays)
    print(f"{before.num_rows - len(paths)} of {before.num_rows} files are removed")
    options = ("--older-than", f"{_LIMIT}T00:00:00Z", "--by", "ts", "--max", "1000")
    commands = {"lake": lake_command(used, "expire-partitions", "db.t", *options)}
    if not chosen.no_java:
        commands["spark"] = java_command(used, _DELETE)
    turns = {
        name: partial(expire, command, kept, used, paths) for name, command in commands.items()
    }
    take_turns(chosen.rounds, turns, ratio=5)


if __name__ == "__main__":
    main()
