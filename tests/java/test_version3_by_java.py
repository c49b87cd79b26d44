"""Tables of format version 3 that lake and Iceberg Java write in turns: rows, row ids, next row id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_table

pytestmark = pytest.mark.java

IDS = "SELECT id, _row_id, _last_updated_sequence_number FROM lake.db.t ORDER BY _row_id"


def ingest(lake: CommandLine, folder: Path, ids: list[int], *options: str) -> dict[str, Any]:
    path = folder / f"{ids[0]}.parquet"
    pq.write_table(pa.table({"id": ids, "name": [f"n{number}" for number in ids]}), path)
    return lake.ok("ingest", "db.t", path, *options)


def lineage_of(warehouse: Path) -> list[tuple[Any, Any]]:
    metadata = pyiceberg_table(warehouse).metadata
    assert metadata.format_version == 3
    last = metadata.snapshots[-1]
    assert last.first_row_id is not None
    assert last.added_rows is not None
    assert metadata.next_row_id == last.first_row_id + last.added_rows
    return [(item.first_row_id, item.added_rows) for item in metadata.snapshots]


def test_rows_get_ids_as_in_java(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    ingest(lake, tmp_path, [1, 2, 3], "--create", "--property", "format-version=3")
    ingest(lake, tmp_path, [4, 5])
    java.sql(warehouse, "INSERT INTO lake.db.t VALUES (6, 'n6'), (7, 'n7')")
    ingest(lake, tmp_path, [8])

    assert lineage_of(warehouse) == [(0, 3), (3, 2), (5, 2), (7, 1)]
    rows = java.sql(warehouse, IDS)
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["_row_id"] for row in rows] == list(range(8))
    assert [row["_last_updated_sequence_number"] for row in rows] == [1, 1, 1, 2, 2, 3, 3, 4]
