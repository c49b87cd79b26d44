"""Time maintenance of many small tables: `lake maintain`, patterns, a loop of processes, Java, and Zamboni.

    python tests/bench/many_tables.py [--tables 100] [--files 6] [--idle 1000] [--rounds 3] [--zamboni PATH]
        [--looped N] [--no-java] [--no-loop] [--folder DIR]

Each table has as many files and snapshots. `lake` gets one line of `maintain` with a policy that asks for a
compaction and an expiration, and once more with nothing to do; or one pattern for `compact` and one for `expire`.
The loop runs a process for each table and each of the two; with --looped N it does so for N tables, and their time
stands for all. Java calls both procedures for each table in one Spark session; it needs a JDK and Maven. Zamboni
gets one line of `maintenance` with both operations; PATH is its program in an environment of its own (iceberg-
zamboni 0.7.0). Targets: `maintain` is 10 times as fast as Java, 5 times as fast as the loop, and 3 times as fast as
Zamboni.

Then `maintain` and `health` look at many tables that need nothing, and at a tenth of them: at most 60 seconds, and
memory that does not grow with the number of tables. Memory is the most that a process ever held (VmHWM).
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import health  # noqa: E402
from compact import copy_of  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402
from support.cli.command_line import CommandLine  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402

POLICY = """
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
# The health of tables decides; what is never due here would look at their folders.
_IDLE_POLICY = """
["*".clean]
enabled = false
["*".compact]
when = "files > 1000"
["*".manifests]
when = "manifests > 1000"
"""
_IDLE_FILES = 20
_EXPIRE = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")


def make_tables(warehouse: Path, names: list[str], files: int) -> None:
    """Make the tables, each by as many loads as it has files."""
    lake = CommandLine(warehouse, engine="inline")
    for name in names:
        for number in range(files):
            lake.load(f"id,name\n{number},n{number}\n", "--create", table=name)


def patterns(warehouse: Path) -> Run:
    """Run the two commands with a pattern; each must have done its work to each table."""
    runs = []
    for command in (("compact", "db.*"), ("expire", "db.*", *_EXPIRE)):
        runs.append(run(lake_command(warehouse, *command)))
        ends = {row["status"] for row in json.loads(runs[-1].output)["result"]["tables"]}
        assert ends == {"done"}, ends
    return _together(runs)


def _together(runs: list[Run], each: float = 1.0) -> Run:
    """Return processes that ran one after the other as one, each of them counted several times."""
    seconds, cpu = sum(item.seconds for item in runs), sum(item.cpu for item in runs)
    return Run(seconds * each, cpu * each, max(item.peak for item in runs), "")


def maintain(warehouse: Path) -> Run:
    """Run `lake maintain` with a policy that asks for the same; it must have done all of it."""
    policy = warehouse.parent / "policy.toml"
    policy.write_text(POLICY)
    log = warehouse.parent / "runs.jsonl"
    command = ("maintain", "db.*", "--policy", str(policy), "--log", str(log))
    return done_by_lake(run(lake_command(warehouse, *command)))


def done_by_lake(done: Run) -> Run:
    """Return a run of `lake maintain` that has done both actions for each table."""
    result = json.loads(done.output)["result"]
    ends = {row["status"] for row in result["actions"]}
    assert (ends, len(result["actions"])) == ({"done"}, 2 * result["tables"]), result
    return done


def nothing_due(warehouse: Path) -> Run:
    """Run `lake maintain` that finds nothing to do."""
    policy, log = warehouse.parent / "policy.toml", warehouse.parent / "runs.jsonl"
    command = ("maintain", "db.*", "--policy", str(policy), "--log", str(log))
    done = run(lake_command(warehouse, *command))
    assert json.loads(done.output)["status"] == "nothing-to-do", done.output
    return done


def loop(warehouse: Path, names: list[str], looped: int) -> Run:
    """Run two processes for each of some tables, which stand for all."""
    commands = [
        lake_command(warehouse, *words)
        for name in names[:looped]
        for words in (("compact", name), ("expire", name, *_EXPIRE))
    ]
    return _together([run(command) for command in commands], len(names) / min(looped, len(names)))


def java(warehouse: Path, names: list[str]) -> Run:
    """Run one Spark session that calls Java's procedures for each table."""
    calls = [f"CALL lake.system.rewrite_data_files(table => '{name}')" for name in names]
    expire = "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1"
    calls += [f"CALL lake.system.expire_snapshots(table => '{name}', {expire})" for name in names]
    return run(java_command(warehouse, *calls))


def zamboni(program: str, warehouse: Path, names: list[str]) -> Run:
    """Run Zamboni's maintenance of the tables; each must have been compacted and expired."""
    with closing(sqlite3.connect(warehouse / "catalog.db")) as catalog:
        # Zamboni opens a local catalog by this name.
        for table in ("iceberg_tables", "iceberg_namespace_properties"):
            catalog.execute(f"UPDATE {table} SET catalog_name = 'local'")
        catalog.commit()
    command = [program, "maintenance", "--local-warehouse", str(warehouse), "--db", "local"]
    command += zamboni_config(warehouse.parent, "local", names)
    return done_by_zamboni(run(command), names)


def zamboni_config(folder: Path, catalog: str, names: list[str]) -> list[str]:
    """Write Zamboni's configuration of tables of one namespace; return the arguments that use it."""
    namespace = names[0].rpartition(".")[0]
    retention = {"enabled": True, "max_snapshot_age_days": 0, "min_snapshots_to_keep": 1}
    document = {
        "version": 2,
        "warehouse": catalog,
        "defaults": {"retention": {"expire_snapshots": retention}},
        "namespaces": {
            namespace: {"tables": {name.rpartition(".")[2]: {"partition": []} for name in names}}
        },
    }
    config = folder / "zamboni.json"
    config.write_text(json.dumps(document))
    command = ["--table-config", str(config), "--yes", "--operations", "compact,expire"]
    return [*command, "--min-input-files", "2"]


def done_by_zamboni(done: Run, names: list[str]) -> Run:
    """Return a run of Zamboni that has compacted and expired each table."""
    counts = done.output.count("into 1 ("), done.output.count("retained 1,")
    assert counts == (len(names), len(names)), done.output
    return done


def idle(warehouse: Path) -> Run:
    """Maintain tables that need nothing."""
    policy, log = warehouse.parent / "idle.toml", warehouse.parent / "idle.jsonl"
    policy.write_text(_IDLE_POLICY)
    done = run(lake_command(warehouse, "maintain", "--policy", str(policy), "--log", str(log)))
    assert json.loads(done.output)["status"] == "nothing-to-do", done.output
    return done


def compare_idle(folder: Path, tables: int, rounds: int) -> None:
    """Look at tables that need nothing, and at a tenth of them."""
    places = {}
    for count in (tables // 10, tables):
        places[count] = folder / f"idle-{count}-{_IDLE_FILES}"
        if not places[count].exists():
            health.make_tables(places[count], count, _IDLE_FILES)
    for name, command in (
        ("maintain", lambda count: idle(places[count])),
        ("health", lambda count: health.health(places[count], count)),
    ):
        print(f"{name} of {tables // 10:,} tables, and of {tables:,}")
        few = take_turns(rounds, {"lake": partial(command, tables // 10)})
        limit = few["lake_peak_mib"] * 1.2
        take_turns(rounds, {"lake": partial(command, tables)}, seconds=60, peak=limit)


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, tables=100, files=6, idle=1000, looped=100)
    parser.add_argument("--no-loop", action="store_true")
    parser.add_argument("--zamboni", help="the program of Zamboni; without it, it is left out")
    arguments = parser.parse_args()
    folder = arguments.folder
    if arguments.tables:
        compare(arguments, folder)
    if arguments.idle:
        compare_idle(folder, arguments.idle, arguments.rounds)


def compare(arguments: Namespace, folder: Path) -> None:
    """Let the programs maintain the same tables in turn."""
    used, kept = folder / "warehouse", folder / f"made-{arguments.tables}-{arguments.files}"
    names = [f"db.t{number:04}" for number in range(arguments.tables)]
    if not kept.exists():
        # Locations in metadata are absolute: the tables are made where they will be used.
        shutil.rmtree(used, ignore_errors=True)
        make_tables(used, names, arguments.files)
        used.rename(kept)
    turns: dict[str, Callable[[], Run]] = {
        "maintain": lambda: maintain(used),
        "nothing": lambda: nothing_due(used),
        "patterns": lambda: patterns(used),
    }
    if arguments.zamboni:
        turns["zamboni"] = lambda: zamboni(arguments.zamboni, used, names)
    if not arguments.no_java:
        turns["java"] = lambda: java(used, names)
    if not arguments.no_loop:
        turns["loop"] = lambda: loop(used, names, arguments.looped)
    found: dict[str, list[Run]] = {name: [] for name in turns}
    for _ in range(arguments.rounds):
        for name, turn in turns.items():
            if name != "nothing":
                copy_of(kept, used)
            if name == "maintain":
                (folder / "runs.jsonl").unlink(missing_ok=True)
            found[name].append(turn())
            print(f"{name}: {found[name][-1]}", flush=True)
    seconds = {name: median(item.seconds for item in each) for name, each in found.items()}
    ratios = {
        name: round(seconds[name] / seconds["maintain"], 1)
        for name in ("zamboni", "java", "loop")
        if name in seconds
    }
    print(json.dumps({"maintain_s": round(seconds["maintain"], 1), "times as fast": ratios}))


if __name__ == "__main__":
    main()
