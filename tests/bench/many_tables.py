"""Time compaction and expiration of many small tables: patterns, `lake maintain`, a loop, one session of Java.

    python tests/bench/many_tables.py [--tables 100] [--files 6] [--rounds 3] [--no-java] [--no-loop] [--folder DIR]

Each table has as many files and snapshots. `lake` gets one pattern for `compact` and one for `expire`, or one
line of `maintain` with a policy that asks for both, and once more with nothing to do; the loop runs a process for
each table and each of the two; Java calls both procedures for each table in one Spark session. Needs a JDK and Maven
for the peer.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of, medians, timed  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402
from support.cli.command_line import CommandLine  # noqa: E402

_POLICY = """
["*".compact]
when = "files > 1"
min-input-files = 2
["*".expire]
when = "snapshots > 1"
older-than = "0s"
retain-last = 1
unsafe-retention = true
["*".clean]
enabled = false
"""
_EXPIRE = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")


def make_tables(warehouse: Path, names: list[str], files: int) -> None:
    """Make the tables, each by as many loads as it has files."""
    lake = CommandLine(warehouse, engine="inline")
    for name in names:
        for number in range(files):
            lake.load(f"id,name\n{number},n{number}\n", "--create", table=name)


def patterns(warehouse: Path) -> float:
    """Return the seconds of the two commands with a pattern; each must have done its work to each table."""
    seconds = 0.0
    for command in (("compact", "db.*"), ("expire", "db.*", *_EXPIRE)):
        took, _, output = timed(lake_command(warehouse, *command))
        seconds += took
        ends = {row["status"] for row in json.loads(output)["result"]["tables"]}
        assert ends == {"done"}, ends
    return seconds


def maintain(warehouse: Path) -> float:
    """Return the seconds of `lake maintain` with a policy that asks for the same; it must have done all of it."""
    policy = warehouse.parent / "policy.toml"
    policy.write_text(_POLICY)
    log = warehouse.parent / "runs.jsonl"
    command = ("maintain", "db.*", "--policy", policy, "--log", log)
    took, _, output = timed(lake_command(warehouse, *command))
    result = json.loads(output)["result"]
    ends = {row["status"] for row in result["actions"]}
    # An expiry, a compaction, and the expiry of what the compaction replaced.
    assert (ends, len(result["actions"])) == ({"done"}, 3 * result["tables"]), result
    return took


def nothing_due(warehouse: Path) -> float:
    """Return the seconds of `lake maintain` that finds nothing to do."""
    policy, log = warehouse.parent / "policy.toml", warehouse.parent / "runs.jsonl"
    command = ("maintain", "db.*", "--policy", policy, "--log", log)
    took, _, output = timed(lake_command(warehouse, *command))
    assert json.loads(output)["status"] == "nothing-to-do", output
    return took


def loop(warehouse: Path, names: list[str]) -> float:
    """Return the seconds of two processes for each table."""
    began = time.perf_counter()
    for name in names:
        timed(lake_command(warehouse, "compact", name))
        timed(lake_command(warehouse, "expire", name, *_EXPIRE))
    return time.perf_counter() - began


def java(warehouse: Path, names: list[str]) -> float:
    """Return the seconds of one Spark session that calls Java's procedures for each table."""
    calls = [f"CALL lake.system.rewrite_data_files(table => '{name}')" for name in names]
    expire = "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1"
    calls += [f"CALL lake.system.expire_snapshots(table => '{name}', {expire})" for name in names]
    return timed(java_command(warehouse, *calls))[0]


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, tables=100, files=6)
    parser.add_argument("--no-loop", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    used, kept = folder / "warehouse", folder / f"made-{arguments.tables}-{arguments.files}"
    names = [f"db.t{number:04}" for number in range(arguments.tables)]
    if not kept.exists():
        # Locations in metadata are absolute: the tables are made where they will be used.
        shutil.rmtree(used, ignore_errors=True)
        make_tables(used, names, arguments.files)
        used.rename(kept)
    columns = ("patterns", "maintain", "nothing", "loop", "java")
    seconds: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(arguments.rounds):
        copy_of(kept, used)
        seconds["patterns"].append(patterns(used))
        copy_of(kept, used)
        seconds["maintain"].append(maintain(used))
        seconds["nothing"].append(nothing_due(used))
        if not arguments.no_loop:
            copy_of(kept, used)
            seconds["loop"].append(loop(used, names))
        if not arguments.no_java:
            copy_of(kept, used)
            seconds["java"].append(java(used, names))
        print({name: round(each[-1], 2) for name, each in seconds.items() if each}, flush=True)
    print(json.dumps(medians(seconds)))


if __name__ == "__main__":
    main()
