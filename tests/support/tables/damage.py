"""Damage by hand: edits of the metadata, lists, manifests and files of the only table of a warehouse.

An edit keeps what it does not damage consistent, such as the lengths of edited manifests in all lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table
from support.tables.metadata_edits import edit_metadata, metadata_path

Plain = dict[str, Any]
Damage = Callable[[CommandLine], None]
NAME = "db.t"


def local(location: str) -> Path:
    """Return the path of a location on this machine."""
    return Path(location.removeprefix("file://"))


def read_avro(path: Path) -> tuple[list[Any], Any, dict[str, str]]:
    """Return the records, the schema and the header of an Avro file."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        return list(reader), json.loads(reader.metadata["avro.schema"]), dict(reader.metadata)


def write_avro(path: Path, rows: list[Any], schema: Any, header: dict[str, str]) -> None:
    """Write an Avro file with the other members of a header."""
    kept = {key: value for key, value in header.items() if not key.startswith(("avro.", "lake."))}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate", metadata=kept)


def metadata_of(lake: CommandLine) -> Path:
    """Return the current metadata file."""
    return metadata_path(lake.warehouse)


def lists_of(lake: CommandLine) -> list[Path]:
    """Return the manifest lists, the oldest first."""
    snapshots = pyiceberg_table(lake.warehouse, NAME).metadata.snapshots
    return [local(snapshot.manifest_list) for snapshot in snapshots]


def manifests_of(lake: CommandLine, content: int = 0) -> list[Path]:
    """Return the manifests that contain data files (0) or delete files (1), the oldest first."""
    rows = {}
    for path in lists_of(lake):
        for row in read_avro(path)[0]:
            if row.get("content", 0) == content:
                rows[row["manifest_path"]] = row.get("sequence_number", 0)
    return [local(path) for path in sorted(rows, key=lambda path: rows[path])]


def data_files(lake: CommandLine, content: int = 0) -> list[Path]:
    """Return the files that manifests of a content name, the oldest first."""
    found = [
        entry["data_file"]["file_path"]
        for path in manifests_of(lake, content)
        for entry in read_avro(path)[0]
    ]
    return [local(location) for location in dict.fromkeys(found)]


def edited(change: Callable[[Plain], object]) -> Damage:
    """Change the metadata file."""

    def damage(lake: CommandLine) -> None:
        edit_metadata(lake.warehouse, change)

    return damage


def rows_edited(change: Callable[[Plain], object], content: int = 0) -> Damage:
    """Change the oldest manifest's row in all lists."""

    def damage(lake: CommandLine) -> None:
        name = manifests_of(lake, content)[0].name
        for path in lists_of(lake):
            rows, schema, header = read_avro(path)
            for row in rows:
                if row["manifest_path"].endswith(name):
                    change(row)
            write_avro(path, rows, schema, header)

    return damage


def entries_edited(
    change: Callable[[list[Any]], object],
    content: int = 0,
    *,
    header: dict[str, str] | None = None,
) -> Damage:
    """Change the entries, and some members of the header, of the oldest manifest; lists remain right."""

    def damage(lake: CommandLine) -> None:
        path = manifests_of(lake, content)[0]
        entries, schema, members = read_avro(path)
        change(entries)
        is_data = entries[0]["data_file"].get("content", 0) == 0
        own = {} if "content" not in members else {"content": "data" if is_data else "deletes"}
        write_avro(path, entries, schema, members | own | (header or {}))

        def adjust(row: Plain) -> None:
            row["manifest_length"] = path.stat().st_size
            row["content"] = int(not is_data)
            row["added_files_count"] = len(entries)
            row["added_rows_count"] = sum(entry["data_file"]["record_count"] for entry in entries)

        rows_edited(adjust, content)(lake)

    return damage


def entry_edited(content: int = 0, **values: Any) -> Damage:
    """Change members of the first entry of the oldest manifest."""
    return entries_edited(lambda entries: entries[0].update(values), content)


def file_edited(content: int = 0, **values: Any) -> Damage:
    """Change members of the file in the first entry of the oldest manifest."""
    return entries_edited(lambda entries: entries[0]["data_file"].update(values), content)


def metric_edited(column: str, key: int, value: Any) -> Damage:
    """Change one column's metric in the first entry of the oldest manifest."""

    def change(entries: list[Any]) -> None:
        pairs = entries[0]["data_file"][column]
        next(pair for pair in pairs if pair["key"] == key)["value"] = value

    return entries_edited(change)


def file_changed(change: Callable[[Path], object], content: int = 0) -> Damage:
    """Change the oldest data file or delete file."""
    return lambda lake: (change(data_files(lake, content)[0]), None)[1]


def file_replaced(rows: pa.Table, content: int = 0, **options: Any) -> Damage:
    """Put another Parquet file in the place of the oldest data file or delete file; its entry has its size."""

    def damage(lake: CommandLine) -> None:
        path = data_files(lake, content)[0]
        pq.write_table(rows, path, **options)
        file_edited(content, file_size_in_bytes=path.stat().st_size)(lake)

    return damage


def cut(path: Path) -> None:
    """Remove the last byte."""
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    """Add a byte."""
    path.write_bytes(path.read_bytes() + b"x")


def flip(position: int) -> Callable[[Path], None]:
    """Change one bit of the byte at a position, which may count from the end."""

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    return change


def scramble(path: Path) -> None:
    """Overwrite the end of a file."""
    data = path.read_bytes()
    path.write_bytes(data[:-40] + b"x" * 40)
