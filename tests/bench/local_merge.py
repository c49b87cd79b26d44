"""Loads of a change log with and without a local merge, alternating in one run.

    python tests/bench/local_merge.py [--changes 10000000] [--keys 100000] [--rounds 3] [--folder DIR]

The log is one Parquet file of updates of random keys, loaded in upsert mode into a new table. All are whole
processes. Prints medians of seconds and of the processor's seconds, peak memory in MiB, and the rows and bytes that
each load wrote.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from compact import medians, timed  # noqa: E402
from shared import lake_command, parser_of  # noqa: E402
from support.cli.command_line import CommandLine  # noqa: E402

_BATCH = 1_000_000


def make_log(path: Path, changes: int, keys: int) -> None:
    """Write updates of random keys."""
    rng = np.random.default_rng(1)
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("op", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, changes, _BATCH):
            rows = min(_BATCH, changes - first)
            columns = [
                pa.array(rng.integers(0, keys, rows)),
                pa.array(rng.random(rows)),
                pa.array(["+U"]).take(pa.array(np.zeros(rows, np.int32))),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def main() -> None:
    """Compare the loads."""
    arguments = parser_of(__doc__, java=False, changes=10_000_000, keys=100_000).parse_args()
    folder = arguments.folder
    log, empty = folder / "log.parquet", folder / "row.csv"
    make_log(log, arguments.changes, arguments.keys)
    empty.write_text("k,v\n-1,0.5\n")
    seconds: dict[str, list[float]] = {"lake": [], "without": []}
    processor: dict[str, list[float]] = {"lake": [], "without": []}
    written: dict[str, object] = {}
    for _ in range(arguments.rounds):
        for name, size in (("lake", "64MB"), ("without", "off")):
            warehouse = folder / name
            shutil.rmtree(warehouse, ignore_errors=True)
            warehouse.mkdir()
            # Equality deletes need a table of format version 2 that exists.
            CommandLine(warehouse, engine="inline").ok("ingest", "db.t", empty, "--create")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            took, peak, text = timed(
                lake_command(
                    warehouse,
                    *("ingest", "db.t", str(log), "--changes-column", "op", "--key", "k"),
                    *("--changes-mode", "upsert", "--local-merge", size),
                )
            )
            files = [path for path in warehouse.rglob("data/**/*.parquet") if path.is_file()]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[name].append(took)
            processor[name].append(
                after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            )
            written[name] = {
                "peak_mib": round(peak),
                "bytes": sum(path.stat().st_size for path in files),
                "rows": sum(pq.ParquetFile(path).metadata.num_rows for path in files),
                "result": json.loads(text)["result"],
            }
    report = {
        "local merge": medians(seconds),
        "processor": medians(processor),
        "written": written,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
