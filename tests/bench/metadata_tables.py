"""Time `lake inspect TABLE files --output FILE.parquet` and others against Spark's metadata tables, in turn.

    python tests/bench/metadata_tables.py [--files 1000000] [--manifests 5000] [--rounds 3] [--no-java] [--csv]
                                          [--kinds files,manifests,partitions,entries] [--folder DIR]

Spark writes the same columns of the same table to Parquet. After the first round, the rows of both are compared,
column by column. ``narrow`` is the table of files without the metrics of columns. With ``--csv``, lake writes CSV,
and nothing is compared. Target: a million files in 3 seconds, and five times as fast as Spark. Needs a JDK and Maven
for the peer.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from shared import java_command, lake_command, parser_of  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import make_wide  # noqa: E402

_FILES = (
    *("content", "file_path", "file_format", "spec_id", "partition", "record_count"),
    "file_size_in_bytes",
)
_METRICS = (
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds"),
    *("upper_bounds", "key_metadata", "split_offsets", "equality_ids", "sort_order_id"),
)
_MANIFESTS = (
    *("content", "path", "length", "partition_spec_id", "added_snapshot_id"),
    *("added_data_files_count", "existing_data_files_count", "deleted_data_files_count"),
    *("added_delete_files_count", "existing_delete_files_count", "deleted_delete_files_count"),
    "partition_summaries",
)
_PARTITIONS = (
    *("partition", "spec_id", "record_count", "file_count", "total_data_file_size_in_bytes"),
    *("position_delete_record_count", "position_delete_file_count"),
    *("equality_delete_record_count", "equality_delete_file_count"),
    *("last_updated_at", "last_updated_snapshot_id"),
)
_ENTRIES = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "data_file")
# The metadata table, the columns, and the column by which rows are compared.
_KINDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "files": ("files", (*_FILES, *_METRICS), "file_path"),
    "narrow": ("files", _FILES, "file_path"),
    "manifests": ("manifests", _MANIFESTS, "path"),
    "partitions": ("partitions", _PARTITIONS, "partition.ts_day"),
    "entries": ("entries", _ENTRIES, "data_file.file_path"),
}
_TARGETS = {"files": 3.0, "narrow": 3.0}


def write(command: list[str], target: Path) -> Run:
    """Run a command that writes a file or a folder in place of an earlier one."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    return run(command)


def _order(path: Path, key: str) -> Any:
    column = pq.read_table(path, columns=[key])
    for _ in range(key.count(".")):
        column = column.flatten()
    return pc.sort_indices(column[0])


def compare(ours: Path, theirs: Path, columns: tuple[str, ...], key: str) -> None:
    """Compare the rows of two outputs, column by column.

    Raises:
        SystemExit: they differ.
    """
    orders = [_order(path, key) for path in (ours, theirs)]
    for column in columns:
        own, other = (
            pq.read_table(path, columns=[column])[column].take(order)
            for path, order in zip((ours, theirs), orders, strict=True)
        )
        if own.type != other.type:
            other = other.cast(own.type)
        if not own.equals(other):
            raise SystemExit(f"{column} of {ours} is not that of {theirs}")
    print(f"    the {len(orders[0])} rows of both are equal")


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = parser_of(__doc__, files=1_000_000, manifests=5_000)
    parser.add_argument("--kinds", default=",".join(_KINDS))
    parser.add_argument("--csv", action="store_true")
    chosen = parser.parse_args()
    warehouse = chosen.folder / f"warehouse-{chosen.files}-{chosen.manifests}"
    if not warehouse.exists():
        make_wide(warehouse, chosen.files, chosen.manifests)
    for name in chosen.kinds.split(","):
        table, columns, key = _KINDS[name]
        ours, theirs = (
            chosen.folder / f"lake.{'csv' if chosen.csv else 'parquet'}",
            chosen.folder / "spark",
        )
        select = ("--select", ",".join(columns)) if name == "narrow" else ()
        lake = lake_command(warehouse, "inspect", "db.t", table, *select, "--output", str(ours))
        turns = {"lake": partial(write, lake, ours)}
        if not chosen.no_java:
            statement = (
                f"INSERT OVERWRITE DIRECTORY '{theirs}' USING parquet "
                f"SELECT {', '.join(columns)} FROM lake.db.t.{table}"
            )
            turns["spark"] = partial(write, java_command(warehouse, statement), theirs)
        print(name)
        limits = {"seconds": _TARGETS[name]} if name in _TARGETS else {}
        take_turns(chosen.rounds, turns, **limits, **({} if chosen.no_java else {"ratio": 5}))
        if not (chosen.csv or chosen.no_java):
            compare(ours, theirs, columns, key)


if __name__ == "__main__":
    main()
