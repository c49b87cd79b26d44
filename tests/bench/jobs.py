"""Time `lake maintain --jobs` on many small tables, on a local disk and in a bucket whose answers are late.

    python tests/bench/jobs.py [--tables 40] [--files 6] [--latency 20] [--rounds 3] [--folder DIR]

PyIceberg makes the tables. Each has as many small files and snapshots, and gets a compaction and expirations. One,
two, four and eight tables are worked on at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of  # noqa: E402
from many_tables import POLICY  # noqa: E402
from memory_store import BUCKET, MemoryStore  # noqa: E402
from shared import parser_of  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_JOBS = (1, 2, 4, 8)


def make_tables(folder: Path, warehouse: str, tables: int, files: int, **storage: str) -> None:
    """Make the tables, and the configuration of `lake` in a folder."""
    folder.mkdir(parents=True)
    properties = {
        "uri": f"sqlite:///{folder.parent / 'used'}/catalog.db",
        "warehouse": warehouse,
        **storage,
    }
    catalog = SqlCatalog("lake", **{**properties, "uri": f"sqlite:///{folder}/catalog.db"})
    catalog.create_namespace("db")
    for number in range(tables):
        table = catalog.create_table(f"db.t{number:03}", _SCHEMA)
        for file in range(files):
            table.append(pa.table([[file], [f"n{file}"]], schema=_SCHEMA))
    lines = [
        f"    {key}: {json.dumps(value)}" for key, value in {"type": "sql", **properties}.items()
    ]
    (folder / ".pyiceberg.yaml").write_text("\n".join(["catalog:", "  lake:", *lines, ""]))


def maintain(folder: Path, tables: int, jobs: int, store: MemoryStore | None) -> Run:
    """Maintain all tables, which must have been done; the tables are made new before."""
    used = folder / "used"
    copy_of(folder / "made", used)
    if store is None:
        # Locations in metadata are absolute: the tables are used where they were made.
        shutil.rmtree(folder / "data", ignore_errors=True)
        shutil.copytree(folder / "kept", folder / "data")
    else:
        store.restore()
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    os.environ["PYICEBERG_HOME"] = str(used)
    words = ["--catalog", "lake", "--json", "maintain", "--policy", policy, "--jobs", jobs]
    words += ["--log", used / "runs.jsonl"]
    done = run([sys.executable, "-m", "lake.cli", *map(str, words)])
    result = json.loads(done.output)["result"]
    if len(result["actions"]) != 3 * tables or result["failed"]:
        raise SystemExit(f"not all was done: {result}")
    return done


def compare(folder: Path, tables: int, rounds: int, store: MemoryStore | None) -> None:
    """Let the numbers of jobs take turns."""
    turns = {
        "lake" if jobs == 1 else f"jobs {jobs}": partial(maintain, folder, tables, jobs, store)
        for jobs in _JOBS
    }
    take_turns(rounds, turns)


def main() -> None:
    """Make the tables and measure."""
    parser = parser_of(__doc__, java=False, tables=40, files=6, latency=20)
    chosen = parser.parse_args()
    local, remote = chosen.folder / "local", chosen.folder / "remote"
    for folder in (local, remote):
        shutil.rmtree(folder, ignore_errors=True)
    print("local disk")
    make_tables(local / "made", f"file://{local}/data", chosen.tables, chosen.files)
    shutil.copytree(local / "data", local / "kept")
    compare(local, chosen.tables, chosen.rounds, None)
    print(f"bucket, answers after {chosen.latency} ms")
    with MemoryStore(0) as store:
        make_tables(
            remote / "made",
            f"s3://{BUCKET}/data",
            chosen.tables,
            chosen.files,
            **store.properties,
        )
        store.keep()
        store.latency_ms = chosen.latency
        compare(remote, chosen.tables, chosen.rounds, store)


if __name__ == "__main__":
    main()
