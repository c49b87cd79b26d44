"""Loads of a small change log that find the old rows of its keys in a large table.

    python tests/bench/lookup.py [--table 10000000] [--changes 10000] [--rounds 3] [--folder DIR]

The table has ten files. ``any order`` and ``in order`` are two tables of the same rows: ids come in no order, or each
file has a range of them. ``recent`` changes have the greatest ids, ``random`` ones any, and both are loaded with
position deletes, which read the key columns of files that may contain a key. ``blind`` loads the recent changes with
equality deletes, which read nothing: what the others read and take beyond that is the search for keys. All are
whole processes, alternating in one run. Prints medians of seconds and of the processor's seconds, and the MiB that
each process read, with Python's own modules.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from compact import copy_of, timed  # noqa: E402
from shared import parser_of  # noqa: E402
from support.cli.command_line import CommandLine  # noqa: E402
from upsert import orders  # noqa: E402

_FILES = 10
_COUNTED = """
import sys
from lake.cli.main import main
code = main(sys.argv[2:])
read = next(line for line in open("/proc/self/io") if line.startswith("rchar"))
open(sys.argv[1], "w").write(read.split()[1])
sys.exit(code)
"""


def make(folder: Path, rows: int) -> dict[str, Path]:
    """Make the two tables; return their warehouses."""
    ids = {"any order": np.random.default_rng(1).permutation(rows), "in order": np.arange(rows)}
    made = {}
    for name, order in ids.items():
        made[name] = folder / name.replace(" ", "-")
        used, sources = folder / "warehouse", folder / "loaded"
        sources.mkdir()
        for number, part in enumerate(np.array_split(order, _FILES)):
            pq.write_table(orders(part, number), sources / f"{number:02d}.parquet")
        # Locations in metadata are absolute: the table is made where it will be used.
        CommandLine(used, engine="inline").ok("ingest", "db.t", sources, "--create")
        used.rename(made[name])
        shutil.rmtree(sources)
    return made


def write_log(path: Path, ids: np.ndarray) -> Path:
    """Write updates of rows."""
    rows = orders(ids, _FILES)
    pq.write_table(rows.append_column("op", pa.array(["+U"] * rows.num_rows)), path)
    return path


def main() -> None:
    """Compare the loads."""
    arguments = parser_of(__doc__, java=False, table=10_000_000, changes=10_000).parse_args()
    folder = arguments.folder
    made, used = make(folder, arguments.table), folder / "warehouse"
    changes, rows = arguments.changes, arguments.table
    logs = {
        "recent": write_log(folder / "recent.parquet", np.arange(rows - changes, rows)),
        "random": write_log(
            folder / "random.parquet",
            np.random.default_rng(2).choice(rows, changes, replace=False),
        ),
    }
    loads = [(table, log, "position") for table in made for log in logs]
    found: dict[str, list[tuple[float, float, float]]] = {}
    results: dict[str, object] = {}
    for _ in range(arguments.rounds):
        for table, log, deletes in [*loads, ("any order", "recent", "equality")]:
            copy_of(made[table], used)
            name = f"{log} in {table}" if deletes == "position" else "blind"
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds, _, output = timed(
                [
                    *(sys.executable, "-c", _COUNTED, str(folder / "read")),
                    *("--warehouse", str(used), "--engine", "inline", "--json"),
                    *("ingest", "db.t", str(logs[log]), "--changes-column", "op", "--key", "id"),
                    *("--changes-mode", "upsert", "--deletes", deletes),
                ]
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            read = int((folder / "read").read_text()) / 2**20
            found.setdefault(name, []).append((seconds, processor, read))
            results[name] = json.loads(output)["result"]["rows_updated"]
    for name, each in found.items():
        seconds, processor, read = (
            round(statistics.median(part), 2) for part in zip(*each, strict=True)
        )
        print(
            json.dumps(
                {
                    "load": name,
                    "seconds": seconds,
                    "processor_seconds": processor,
                    "read_mib": read,
                    "rows_updated": results[name],
                }
            )
        )


if __name__ == "__main__":
    main()
