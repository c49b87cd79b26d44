"""Rows that are divided among many tables: `ingest --route` against one load of the same rows into one table.

    python tests/bench/route.py [--tables 20] [--files 20] [--rows 50000] [--rounds 1]

Both are whole processes that create their tables. Prints, per round, seconds and rows a second of
each, and their medians, and the peak memory of the divided load.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from compact import medians, timed
from pyarrow import parquet
from support.tables.iceberg_tables import pyiceberg_catalog


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lake-bench-"))
    sources = folder / "sources"
    sources.mkdir()
    for number in range(chosen.files):
        ids = np.arange(number * chosen.rows, (number + 1) * chosen.rows)
        kinds = np.char.add("t", (ids % chosen.tables).astype(str))
        names = np.char.add("name-", ids.astype(str))
        rows = pa.table({"id": ids, "kind": pa.array(kinds), "name": pa.array(names)})
        parquet.write_table(rows, sources / f"{number:04d}.parquet", compression="zstd")
    total = chosen.files * chosen.rows
    seconds: dict[str, list[float]] = {"route": [], "one_table": []}
    peaks = []
    for _ in range(chosen.rounds):
        for name, taken in seconds.items():
            warehouse = folder / "warehouse"
            shutil.rmtree(warehouse, ignore_errors=True)
            pyiceberg_catalog(warehouse).create_namespace("db")
            command = [sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--json"]
            if name == "route":
                command += ["ingest", "db.{kind}", str(sources), "--route", "kind", "--create"]
            else:
                command += ["ingest", "db.t", str(sources), "--create"]
            took, peak, output = timed(command)
            taken.append(took)
            peaks += [peak] if name == "route" else []
            assert json.loads(output)["result"]["rows_written"] == total
            print(f"{name} {took:.2f} s, {total / took:,.0f} rows/s, {peak:.0f} MiB", flush=True)
    print(json.dumps({**medians(seconds), "peak_mib": round(max(peaks))}))


if __name__ == "__main__":
    main()
