"""An upsert of which half of the rows exist, side by side with Spark's MERGE INTO, alternating in one run.

    python tests/bench/upsert.py [--table 10000000] [--source 1000000] [--rounds 3] [--version 2]
                                 [--engine auto] [--deletes position] [--no-java] [--folder DIR] [--partial]

With ``--partial`` the source has two of the columns, of which one is NULL in every third row, and both
engines update these columns. Both are whole processes on copies of one table; Spark merges on read. Prints,
per round and as medians, seconds and the ratio, processor seconds, lake's peak memory (the largest Python process
that did the work), and whether the number of rows, and a sum over their values, are the same afterwards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from compact import copy_of  # noqa: E402
from shared import (  # noqa: E402
    java_command,
    lake_command,
    parser_of,
)
from support.cli.command_line import CommandLine  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402

_FILES = 10
_MERGE = """
    MERGE INTO lake.db.t t USING (SELECT * FROM parquet.`{source}`) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""
_PARTIAL_MERGE = """
    MERGE INTO lake.db.t t USING (SELECT * FROM parquet.`{source}`) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET t.amount = s.amount, t.name = coalesce(s.name, t.name)
    WHEN NOT MATCHED THEN INSERT (id, amount, name) VALUES (s.id, s.amount, s.name)
"""


def orders(ids: Any, seed: int) -> pa.Table:
    """Return a row for each id: the same in every run."""
    rng = np.random.default_rng(seed)
    rows = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array(rng.integers(0, 1_000_000, rows)),
            "amount": pa.array(rng.integers(0, 100_000, rows)),
            "name": pa.array(np.char.add("name-", rng.integers(0, 100_000, rows).astype(str))),
            "at": pa.array(rng.integers(1_600_000_000, 1_700_000_000, rows) * 10**6).cast(
                pa.timestamp("us", "UTC")
            ),
            "paid": pa.array(rng.integers(0, 2, rows).astype(bool)),
        }
    )


def make(folder: Path, used: Path, arguments: argparse.Namespace) -> None:
    """Make ``db.t``, whose ids come in no order, and the source."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(arguments.table)
    sources = folder / "loaded"
    sources.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(ids, _FILES)):
        pq.write_table(orders(part, number), sources / f"{number:02d}.parquet")
    CommandLine(used, engine="inline").ok(
        "ingest",
        "db.t",
        sources,
        "--create",
        "--property",
        f"format-version={arguments.version}",
        "--property",
        "write.merge.mode=merge-on-read",
        "--target-size",
        "32MB",
    )
    shutil.rmtree(sources)
    half = arguments.source // 2
    old = rng.choice(arguments.table, arguments.source - half, replace=False)
    mixed = rng.permutation(np.concatenate([old, arguments.table + np.arange(half)]))
    pq.write_table(orders(mixed, _FILES), folder / "source.parquet")


def make_partial(folder: Path) -> Path:
    """Write some columns of the source, with NULLs, to a file; return its path."""
    rows = pq.read_table(folder / "source.parquet", columns=["id", "amount", "name"])
    nulls = pa.array(np.arange(rows.num_rows) % 3 == 0)
    names = pc.if_else(nulls, pa.scalar(None, pa.string()), rows["name"])
    path = folder / "partial.parquet"
    pq.write_table(rows.set_column(2, "name", names), path)
    return path


def rows_and_sum(warehouse: Path, folder: Path) -> tuple[int, int]:
    """Return what lake reads of the table."""
    output = folder / "scan.parquet"
    lake = CommandLine(warehouse, engine="inline")
    lake.ok("scan", "db.t", "--select", "amount,name", "--output", output)
    rows = pq.read_table(output)
    output.unlink()
    lengths = pc.sum(pc.binary_length(rows["name"])).as_py()
    return rows.num_rows, int(rows["amount"].to_numpy().sum()) + lengths


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, table=10_000_000, source=1_000_000)
    parser.add_argument("--version", default="2")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--deletes", default="position")
    parser.add_argument("--partial", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    used, kept = folder / "warehouse", folder / f"made-{arguments.version}-{arguments.table}"
    if not kept.exists():
        # Locations in metadata are absolute: the table is made where it will be used.
        shutil.rmtree(used, ignore_errors=True)
        make(folder, used, arguments)
        used.rename(kept)
    source = make_partial(folder) if arguments.partial else folder / "source.parquet"
    merge = _PARTIAL_MERGE if arguments.partial else _MERGE
    words = ("db.t", str(source), "--upsert", "--key", "id", "--deletes", arguments.deletes)
    words += ("--merge", "partial-update") if arguments.partial else ()
    ours = [(0, 0)]

    def lake() -> Run:
        copy_of(kept, used)
        done = run(lake_command(used, "--engine", arguments.engine, "ingest", *words))
        print(json.loads(done.output)["result"])
        ours[0] = rows_and_sum(used, folder)
        return done

    def java() -> Run:
        copy_of(kept, used)
        done = run(java_command(used, merge.format(source=source)))
        print(f"the same rows: {rows_and_sum(used, folder) == ours[0]}")
        return done

    turns = {"lake": lake} if arguments.no_java else {"lake": lake, "java": java}
    take_turns(arguments.rounds, turns)


if __name__ == "__main__":
    main()
