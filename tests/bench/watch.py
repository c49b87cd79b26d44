"""Files that arrive in a folder, loaded once each: lake's watch and Spark's file source, alternating in one run.

    python tests/bench/watch.py [--files 2000] [--rows 5000] [--rounds 1] [--folder FOLDER]

Both end when all files are loaded. Spark appends to an Iceberg table with the trigger AvailableNow and 100 files a
batch, and keeps a checkpoint; lake keeps its state, and commits epochs of at most 1,000 files. Prints, per round and
as medians: seconds of the whole process of each, the ratio, and lake's peak memory; the rows are compared.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from compact import SCHEMA, lineitems, medians, timed
from pyarrow import parquet
from shared import lake_command, parser_of
from support.peers.java_peer import session
from support.tables.iceberg_tables import pyiceberg_catalog, pyiceberg_table


def fresh(warehouse: Path) -> None:
    """Make an empty table."""
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA)


def spark(sources: str, warehouse: str, checkpoint: str) -> None:
    """Load all files by Spark's file source."""
    started = session(warehouse)
    schema = started.read.parquet(sources).limit(0).schema
    files = started.readStream.schema(schema).option("maxFilesPerTrigger", 100).parquet(sources)
    written = files.writeStream.format("iceberg").outputMode("append").trigger(availableNow=True)
    written.option("checkpointLocation", checkpoint).toTable("lake.db.t").awaitTermination()


def rows_of(warehouse: Path) -> int:
    """Return the number of rows by metadata."""
    snapshot = pyiceberg_table(warehouse).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary.additional_properties["total-records"])


def main() -> None:
    """Run the comparison."""
    arguments = parser_of(__doc__, rounds=1, java=False, files=2_000, rows=5_000).parse_args()
    folder = arguments.folder
    sources = folder / f"sources-{arguments.files}-{arguments.rows}"
    if not sources.exists():
        sources.mkdir(parents=True)
        for number in range(arguments.files):
            rows = lineitems(number, arguments.rows)
            parquet.write_table(rows, sources / f"{number:05d}.parquet", compression="zstd")
    used, state = folder / "watch", folder / "state"
    seconds: dict[str, list[float]] = {"lake": [], "java": []}
    peaks = []
    for _ in range(arguments.rounds):
        for name, taken in seconds.items():
            fresh(used)
            shutil.rmtree(state, ignore_errors=True)
            command = [sys.executable, __file__, "spark", str(sources), str(used), str(state)]
            if name == "lake":
                words = ("ingest", "db.t", "--watch", str(sources), "--stream", "s", "--once")
                command = lake_command(used, *words, "--state", str(state), "--settle", "0s")
            took, peak, _ = timed(command)
            taken.append(took)
            peaks += [peak] if name == "lake" else []
            rows = rows_of(used)
            assert rows == arguments.files * arguments.rows, rows
            print(f"{name} {took:.2f} s, peak {peak:.0f} MiB, {rows:,} rows", flush=True)
    print(json.dumps({**medians(seconds), "peak_mib": round(max(peaks))}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["spark"]:
        spark(*sys.argv[2:])
    else:
        main()
