"""Files loaded by range into a sorted table, side by side with Iceberg Java's INSERT, alternating in one run.

    python tests/bench/sorted_ingest.py [--files 300] [--rows 20000] [--rounds 3] [--no-java] [--folder FOLDER]

Prints, per round and as medians: seconds of the whole process of each, the ratio, lake's peak memory, and how
many files a filter on a hundredth of the order leaves.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from compact import SCHEMA, data_files, lineitems, medians, timed
from pyarrow import parquet
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from shared import java_command, lake_command, parser_of
from support.tables.iceberg_tables import pyiceberg_catalog

_ORDER = SortOrder(
    SortField(11, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
)
_FEW = "l_shipdate < '1992-02-01'"


def fresh(warehouse: Path, target_bytes: int) -> None:
    """Make an empty table that asks for range distribution."""
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    properties = {
        "write.distribution-mode": "range",
        "write.target-file-size-bytes": str(target_bytes),
    }
    catalog.create_table("db.t", SCHEMA, sort_order=_ORDER, properties=properties)


def left(warehouse: Path) -> str:
    """Return how many files a filter leaves, of how many."""
    _, _, output = timed(lake_command(warehouse, "scan", "db.t", "--plan", "--where", _FEW))
    return f"{json.loads(output)['plan']['files']} of {len(data_files(warehouse))} files are read"


def main() -> None:
    """Run the comparison."""
    arguments = parser_of(__doc__, files=300, rows=20_000, target_mib=32).parse_args()
    folder = arguments.folder
    sources = folder / f"sources-{arguments.files}-{arguments.rows}"
    if not sources.exists():
        sources.mkdir(parents=True)
        for number in range(arguments.files):
            parquet.write_table(
                lineitems(number, arguments.rows),
                sources / f"{number:05d}.parquet",
                compression="zstd",
            )
    used, target = folder / "sorted", arguments.target_mib * 1024 * 1024
    seconds: dict[str, list[float]] = {"lake": [], "java": []}
    peaks = []
    insert = f"INSERT INTO lake.db.t SELECT * FROM parquet.`{sources}`"
    peer = java_command(used, insert)
    for _ in range(arguments.rounds):
        fresh(used, target)
        load = ["ingest", "db.t", f"{sources}/*.parquet"]
        took, peak, _ = timed([*lake_command(used), "--engine", "spark", *load])
        seconds["lake"].append(took)
        peaks.append(peak)
        print(f"lake {took:.2f} s, peak {peak:.0f} MiB, {left(used)}", flush=True)
        if not arguments.no_java:
            fresh(used, target)
            took, _, _ = timed(peer)
            seconds["java"].append(took)
            print(f"java {took:.2f} s, {left(used)}", flush=True)
    print(json.dumps({**medians(seconds), "peak_mib": round(max(peaks))}))


if __name__ == "__main__":
    main()
