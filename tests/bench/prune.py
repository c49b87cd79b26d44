"""Scans and upserts that are pruned by keys, side by side with Spark, alternating in one run.

    python tests/bench/prune.py [scan] [plan] [upsert] [--files 2000] [--rows 20000] [--planned 200000]
                                [--keys 1000000] [--table 10000000] [--table-files 1000] [--rounds 3]
                                [--no-java] [--folder DIR]

- scan: a fact partitioned by day, 200 days; a dimension of days, of which the filter leaves 20. Compared with Spark's
  join, which prunes dynamically, to Parquet. Both results must have the same number of rows.
- plan: the plan of a table whose files exist in metadata only, by a file of keys, beside the plan without keys.
- upsert: 5,000 random UUID keys, of a tenth of the files, into a table sorted by key. Compared with Spark's MERGE,
  and with lake when the keys exclude no file and no row group.

All are whole processes. Prints seconds, processor seconds, ratios of medians, and lake's peak memory in MiB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from compact import copy_of  # noqa: E402
from foreign_files import TABLE, make  # noqa: E402
from shared import (  # noqa: E402
    java_command,
    lake_command,
    parser_of,
)
from support.cli.command_line import CommandLine  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402

_DAYS, _KEPT_DAYS = 200, 20
_FIRST_DAY = 20_000
_SOURCE_KEYS = 5_000
_MOST_MIB = 400
_JOIN = """
    INSERT OVERWRITE DIRECTORY '{output}' USING parquet
    SELECT f.* FROM lake.db.fact f JOIN lake.db.days d ON f.day = d.day WHERE d.season = 'summer'
"""
# Runs lake; its keys exclude no file and no row group.
_UNPRUNED = """
import sys
from lake.core.load.upsert import key_matching
real = key_matching.KeyPruner
key_matching.KeyPruner = lambda keys, schema: real(None, schema)
key_matching.sent_keys = lambda keys: b""
from lake.cli.__main__ import run
sys.argv = ["lake", *sys.argv[1:]]
sys.exit(run())
"""
_MERGE = """
    MERGE INTO lake.db.t t USING (SELECT * FROM parquet.`{source}`) s ON t.k = s.k
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


def make_fact(warehouse: Path, folder: Path, files: int, rows: int) -> None:
    """Make ``db.fact`` with some files for each day, and ``db.days``."""
    lake = CommandLine(warehouse, engine="inline")
    rng = np.random.default_rng(1)
    sources = folder / "loaded"
    days = pa.array(np.arange(_FIRST_DAY, _FIRST_DAY + _DAYS), pa.int32()).cast(pa.date32())
    per_load = _DAYS
    for load in range(max(files // per_load, 1)):
        sources.mkdir(parents=True)
        total = per_load * rows
        table = pa.table(
            {
                "day": days.take(pa.array(np.repeat(np.arange(_DAYS), rows))),
                "id": pa.array(np.arange(total) + load * total),
                "amount": pa.array(rng.random(total)),
                "store": pa.array(rng.integers(0, 1000, total)),
            }
        )
        pq.write_table(table, sources / "rows.parquet")
        new = ("--create", "--partition-by", "day") if load == 0 else ()
        lake.ok("ingest", "db.fact", sources, *new)
        shutil.rmtree(sources)
    season = ["summer" if day % (_DAYS // _KEPT_DAYS) == 0 else "other" for day in range(_DAYS)]
    pq.write_table(pa.table({"day": days, "season": season}), folder / "days.parquet")
    lake.ok("ingest", "db.days", folder / "days.parquet", "--create")


def compare_scan(folder: Path, arguments: argparse.Namespace) -> None:
    """Read the rows of 20 of 200 days."""
    warehouse = folder / f"fact-{arguments.files}-{arguments.rows}"
    if not warehouse.exists():
        make_fact(warehouse, folder, arguments.files, arguments.rows)
    output, found = folder / "output", [0]

    def lake() -> Run:
        shutil.rmtree(output, ignore_errors=True)
        words = ("db.fact", "--prune-with", "db.days where season = 'summer'", "--on", "day")
        done = run(lake_command(warehouse, "scan", *words, "--matching", "--output", str(output)))
        document = json.loads(done.output)
        found[0] = document["result"]["rows"]
        print(document["plan"]["pruning"])
        return done

    def java() -> Run:
        shutil.rmtree(output, ignore_errors=True)
        done = run(java_command(warehouse, _JOIN.format(output=output)))
        rows = sum(pq.ParquetFile(path).metadata.num_rows for path in output.glob("*.parquet"))
        print(f"same rows: {rows == found[0]}")
        return done

    take_turns(arguments.rounds, _turns(arguments, lake=lake, java=java), ratio=4)


def _turns(
    arguments: argparse.Namespace, **turns: Callable[[], Run]
) -> dict[str, Callable[[], Run]]:
    return {name: turn for name, turn in turns.items() if name != "java" or not arguments.no_java}


def compare_plan(folder: Path, arguments: argparse.Namespace) -> None:
    """Plan many files with many keys."""
    warehouse = folder / "planned"
    if not warehouse.exists():
        make(warehouse, "lake", arguments.planned)
    rng = np.random.default_rng(1)
    keys = folder / "keys.parquet"
    pq.write_table(pa.table({"n2": rng.integers(0, 2**62, arguments.keys)}), keys)
    # The filter makes both read the columns' bounds.
    plain = lake_command(warehouse, "scan", TABLE, "--plan", "--where", "n2 is not null")
    pruned = [*plain, "--prune-with", str(keys), "--on", "n2", "--prune-limit", "0"]

    def lake() -> Run:
        done = run(pruned)
        print(json.loads(done.output)["plan"]["pruning"])
        return done

    found = take_turns(
        arguments.rounds, {"lake": lake, "without": lambda: run(plain)}, peak=_MOST_MIB
    )
    print(f"seconds that the keys take: {found['lake_s'] - found['without_s']:.2f}")


def make_sorted(warehouse: Path, folder: Path, rows: int, files: int) -> None:
    """Make ``db.t``, sorted by a random UUID, and the source."""
    rng = np.random.default_rng(1)
    # The first bytes ascend from file to file; the others are random.
    keys = np.sort(rng.integers(0, 2**63, rows).astype(">u8"))
    raw = np.empty((rows, 16), np.uint8)
    raw[:, :8] = keys.view(np.uint8).reshape(-1, 8)
    raw[:, 8:] = rng.integers(0, 256, (rows, 8))
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(raw)])
    ids = pa.ExtensionArray.from_storage(pa.uuid(), column)
    table = pa.table({"k": ids, "v": pa.array(np.zeros(rows, np.int64))})
    sources = folder / "loaded"
    sources.mkdir(parents=True)
    for number in range(files):
        part = table.slice(number * rows // files, rows // files)
        pq.write_table(part, sources / f"{number:05d}.parquet")
    lake = CommandLine(warehouse, engine="inline")
    lake.ok(
        *("ingest", "db.t", sources, "--create", "--property", "write.merge.mode=merge-on-read"),
        *("--target-size", f"{max(rows // files * 26, 1)}B", "--sort-by", "k"),
    )
    shutil.rmtree(sources)
    # All are in a tenth of the files: with keys in every file, every file must be read.
    chosen = rng.choice(rows // 10, _SOURCE_KEYS, replace=False)
    source = table.take(pa.array(chosen))
    pq.write_table(source, folder / "source.parquet")
    # Spark reads UUIDs as text, and does not read the Parquet type.
    texts = [str(key) for key in source["k"].to_pylist()]
    pq.write_table(source.set_column(0, "k", pa.array(texts)), folder / "texts.parquet")


def compare_upsert(folder: Path, arguments: argparse.Namespace) -> None:
    """Upsert random keys."""
    used = folder / "warehouse"
    kept = folder / f"sorted-{arguments.table}-{arguments.table_files}"
    if not kept.exists():
        shutil.rmtree(used, ignore_errors=True)
        make_sorted(used, folder, arguments.table, arguments.table_files)
        used.rename(kept)
    source = folder / "source.parquet"
    words = ("ingest", "db.t", str(source), "--upsert", "--key", "k", "--deletes", "position")
    pruned = lake_command(used, *words)
    unpruned = [sys.executable, "-c", _UNPRUNED, *pruned[pruned.index("--warehouse") :]]
    merge = java_command(used, _MERGE.format(source=folder / "texts.parquet"))

    def on_a_copy(command: Sequence[str]) -> Run:
        copy_of(kept, used)
        return run(command)

    turns = _turns(
        arguments,
        lake=partial(on_a_copy, pruned),
        unpruned=partial(on_a_copy, unpruned),
        java=partial(on_a_copy, merge),
    )
    take_turns(arguments.rounds, turns)


_COMPARISONS = {"scan": compare_scan, "plan": compare_plan, "upsert": compare_upsert}


def main() -> None:
    """Run the comparisons."""
    parser = parser_of(
        __doc__,
        files=2_000,
        rows=20_000,
        planned=200_000,
        keys=1_000_000,
        table=10_000_000,
        table_files=1_000,
    )
    parser.add_argument("what", nargs="*", choices=[*_COMPARISONS, []])
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.what or _COMPARISONS:
        _COMPARISONS[name](folder, arguments)


if __name__ == "__main__":
    main()
