"""Small tables and sources for tests on a cluster, and what is below a table beside what it holds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table

# A row is (id, part, value).
Row = tuple[int, str, int]


def rows(first: int, end: int, value: int = 0) -> list[Row]:
    """Return rows of three parts."""
    return [(number, f"p{number % 3}", number * 10 + value) for number in range(first, end)]


def sources(folder: Path, *parts: Iterable[Row]) -> list[Path]:
    """Write each part as a Parquet file."""
    folder.mkdir(exist_ok=True)
    made = []
    for number, part in enumerate(parts):
        columns = zip(*part, strict=True)
        table = pa.table(dict(zip(("id", "part", "value"), columns, strict=True)))
        made.append(folder / f"{number}.parquet")
        pq.write_table(table, made[-1])
    return made


def rows_of(lake: CommandLine, table: str = "db.t") -> list[Row]:
    """Return a table's rows, sorted, as lake reads them in this process."""
    out = lake.warehouse.parent / "rows.json"
    local = CommandLine(lake.warehouse, engine="inline")
    local.ok("scan", table, "--output", out, "--output-format", "json", "--replace")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    return sorted((row["id"], row["part"], row["value"]) for row in found)


def files_of_rows(lake: CommandLine, column: str) -> list[list[int]]:
    """Return the values of a column of ``db.t`` in each live file, in their order."""
    table = pyiceberg_table(lake.warehouse)
    paths = [
        path.removeprefix("file://") for path in table.inspect.data_files()["file_path"].to_pylist()
    ]
    return [pq.read_table(path)[column].to_pylist() for path in paths]


def strangers(lake: CommandLine, name: str = "db.t") -> set[str]:
    """Return the files below a table's data that no snapshot holds, by PyIceberg's word."""
    table = pyiceberg_table(lake.warehouse, name)
    held = table.inspect.all_files()["file_path"].to_pylist()
    folder = Path(table.location().removeprefix("file://")) / "data"
    below = {str(path) for path in folder.rglob("*") if path.is_file()}
    return below - {path.removeprefix("file://") for path in held}


def begun(lake: CommandLine, folder: Path, *options: str) -> None:
    """Make a table of six files, in this process."""
    local = CommandLine(lake.warehouse, engine="inline")
    for number in range(6):
        path = sources(folder, rows(number * 10, number * 10 + 10))
        local.ok("ingest", "db.t", *path, "--create", *options)
