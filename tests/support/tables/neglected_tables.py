"""Tables that need maintenance, each with one ill, which is worth an action in an object store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from support.cli.command_line import CommandLine
from support.tables.delete_files import (
    commit_deletes,
    commit_equality_delete,
    position_file,
)
from support.tables.iceberg_tables import (
    SCHEMA,
    make_table,
    named_rows,
    open_session,
    pyiceberg_table,
)

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
# The action that mends each table; nothing else pays.
MENDED_BY = {
    "db.deletes": "deletes",
    "db.keys": "deletes",
    "db.manifests": "manifests",
    "db.small": "compact",
    "db.snapshots": "expire",
}
HEALTHY = ("db.empty", "db.healthy")
NAMES = tuple(sorted((*MENDED_BY, *HEALTHY)))
_MANY = 20


def add_files(warehouse: Path, name: str, count: int, rows: int = 2) -> list[str]:
    """Add many small Parquet files in one commit of PyIceberg; return their locations."""
    folder = warehouse / "small" / name
    folder.mkdir(parents=True)
    paths = []
    for number in range(count):
        ids = range(number * rows, number * rows + rows)
        path = folder / f"{number}.parquet"
        pq.write_table(
            named_rows(*ids).cast(schema_to_pyarrow(SCHEMA, include_field_ids=False)), path
        )
        paths.append(f"file://{path}")
    pyiceberg_table(warehouse, name).add_files(paths)
    return paths


def append(warehouse: Path, name: str, count: int) -> None:
    """Append a row in a commit each, by PyIceberg."""
    table = pyiceberg_table(warehouse, name)
    for number in range(count):
        table.append(named_rows(number))


def make_neglected(warehouse: Path) -> None:
    """Make the tables of `MENDED_BY`, and those of `HEALTHY`."""
    make_table(warehouse, "db.empty")
    make_table(warehouse, "db.healthy").append(named_rows(*range(100)))
    make_table(warehouse, "db.small")
    add_files(warehouse, "db.small", _MANY)
    for name in ("db.deletes", "db.keys"):
        make_table(warehouse, name)
        (path,) = add_files(warehouse, name, 1, rows=100)
    table = open_session(warehouse).table("db.deletes")
    path = next(iter(pyiceberg_table(warehouse, "db.deletes").inspect.data_files()["file_path"]))
    places = [(path.as_py(), number) for number in range(_MANY)]
    commit_deletes(table, *(position_file(table, [place]) for place in places))
    for number in range(_MANY // 2):
        commit_equality_delete(warehouse, [number], "db.keys")
    make_table(
        warehouse,
        "db.snapshots",
        spec=BY_NAME,
        history__expire__max_snapshot_age_ms="1",
    )
    append(warehouse, "db.snapshots", 12)
    make_table(warehouse, "db.manifests", spec=BY_NAME, commit__manifest_merge__enabled="false")
    append(warehouse, "db.manifests", _MANY)


def rows_of(lake: CommandLine, names: Sequence[str] = NAMES) -> dict[str, list[tuple[object, ...]]]:
    """Return the sorted rows of each table, by PyIceberg, or by `lake scan` where equality deletes hide some."""
    found = {}
    for name in names:
        has_keys = "2" in map(str, lake.table(name).inspect.delete_files()["content"].to_pylist())
        rows = lake.scanned(table=name) if has_keys else lake.rows(name)
        found[name] = sorted(tuple(row[key] for key in ("id", "name")) for row in rows)
    return found


def run(lake: CommandLine, *words: object) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the result of a run."""
    result = lake("--json", *words)
    return result.exit_code, result.json()["result"]


class Warehouse:
    """A warehouse that is made once and restored to that state for each test; its place stays the same.

    Args:
        folder: an empty folder for it and for a copy.
        make: makes the tables.
    """

    def __init__(self, folder: Path, make: Callable[[Path], None] = make_neglected) -> None:
        self.path, self._saved = folder / "warehouse", folder / "saved"
        make(self.path)
        shutil.copytree(self.path, self._saved)

    def restored(self) -> CommandLine:
        """Restore the warehouse; return a command line on it."""
        shutil.rmtree(self.path)
        shutil.copytree(self._saved, self.path)
        return CommandLine(self.path)
