"""Rows that are divided among many tables: `ingest --route` against one load of the same rows into one table.

    python tests/bench/route.py [--tables 20] [--files 20] [--rows 50000] [--rounds 1]

Both are whole processes that create their tables. Prints, per round, seconds and rows a second of
each, and their medians, and the peak memory of the divided load.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
from compact import medians, timed
from pyarrow import parquet
from shared import lake_command, parser_of
from support.tables.iceberg_tables import pyiceberg_catalog


def main() -> None:
    """Run the comparison."""
    chosen = parser_of(__doc__, rounds=1, java=False, tables=20, files=20, rows=50_000).parse_args()
    folder = chosen.folder
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
            table, *more = ("db.{kind}", "--route", "kind") if name == "route" else ("db.t",)
            command = lake_command(warehouse, "ingest", table, str(sources), *more, "--create")
            took, peak, output = timed(command)
            taken.append(took)
            peaks += [peak] if name == "route" else []
            assert json.loads(output)["result"]["rows_written"] == total
            print(f"{name} {took:.2f} s, {total / took:,.0f} rows/s, {peak:.0f} MiB", flush=True)
    print(json.dumps({**medians(seconds), "peak_mib": round(max(peaks))}))


if __name__ == "__main__":
    main()
