"""Time `lake health` on a catalog of many tables, and commands that read the metadata of many snapshots.

    python tests/bench/health.py [--tables 200] [--files 100] [--snapshots 100000] [--rounds 3] [--folder DIR]

PyIceberg makes the tables, each of small files in one commit. Targets: 10 seconds for 200 tables of 100 files, in
memory that does not grow with the number of tables; 5 seconds and 600 MiB for 100,000 snapshots, whose metadata file
has 250 MB, also for `snapshots` and `expire --dry-run`. Memory is the most that the process ever held (VmHWM).
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from shared import lake_command, parser_of  # noqa: E402
from support.tables.iceberg_tables import pyiceberg_catalog  # noqa: E402
from support.tables.metadata_edits import edit_metadata  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402

# With these in its summary, a snapshot has 2.4 KB of text, as those of streams have.
_SUMMARY = {f"changed-property-{number:02}": f"{number:040}" for number in range(27)}
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def make_tables(warehouse: Path, tables: int, files: int) -> None:
    """Make tables that have the same small files."""
    catalog = _catalog(warehouse)
    paths = [warehouse / "files" / f"{number}.parquet" for number in range(files)]
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        pq.write_table(pa.table([[number], ["a"]], schema=_SCHEMA), path)
    for number in range(tables):
        table = catalog.create_table(f"db.t{number}", _SCHEMA)
        table.add_files([f"file://{path}" for path in paths])


def make_history(warehouse: Path, snapshots: int) -> None:
    """Make a table whose metadata file lists many snapshots that are long expired."""
    table = _catalog(warehouse).create_table("db.t", _SCHEMA)
    table.append(pa.table([[1], ["a"]], schema=_SCHEMA))

    def lengthen(document: dict[str, object]) -> None:
        ((head,),) = (document["snapshots"],)  # type: ignore[misc]
        head["summary"] |= _SUMMARY
        old = [
            {**head, "snapshot-id": number, "timestamp-ms": number, "sequence-number": 1}
            | ({"parent-snapshot-id": number - 1} if number > 1 else {})
            for number in range(1, snapshots)
        ]
        document["snapshots"] = [*old, {**head, "parent-snapshot-id": snapshots - 1}]
        document["snapshot-log"] = [
            {name: one[name] for name in ("snapshot-id", "timestamp-ms")}
            for one in document["snapshots"]  # type: ignore[attr-defined]
        ]

    edit_metadata(warehouse, lengthen)


def _catalog(warehouse: Path) -> SqlCatalog:
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    return catalog


def health(warehouse: Path, tables: int) -> Run:
    """Grade all tables, and check that each has a grade."""
    done = run(lake_command(warehouse, "health"))
    found = json.loads(done.output)["result"]["tables"]
    if len(found) != tables or not all(row["grade"] for row in found):
        raise SystemExit(f"{len(found)} of {tables} tables, or a table without a grade")
    return done


def main() -> None:
    """Make the tables, unless they exist already, and measure."""
    parser = parser_of(__doc__, java=False, tables=200, files=100, snapshots=100_000)
    chosen = parser.parse_args()
    many = chosen.folder / f"tables-{chosen.tables}-{chosen.files}"
    if not many.exists():
        make_tables(many, chosen.tables, chosen.files)
    long = chosen.folder / f"snapshots-{chosen.snapshots}"
    if not long.exists():
        make_history(long, chosen.snapshots)
    print("tables")
    take_turns(chosen.rounds, {"lake": partial(health, many, chosen.tables)}, seconds=10, peak=512)
    commands = {
        "health": partial(health, long, 1),
        "snapshots": partial(run, lake_command(long, "snapshots", "db.t")),
        "expire": partial(run, lake_command(long, "expire", "db.t", "--dry-run")),
    }
    for name, command in commands.items():
        print(f"{name} of many snapshots")
        take_turns(chosen.rounds, {"lake": command}, seconds=5, peak=600)


if __name__ == "__main__":
    main()
