"""Tables whose metadata holds what the specification allows and lake does not write."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.metadata_edits import edit_metadata, metadata_path, read_metadata, retype

Make = Callable[..., None]


@pytest.fixture
def make(lake: CommandLine, tmp_path: Path) -> Make:
    """Make three snapshots of a table with a binary column that stands for another one's type."""

    def made(*options: str) -> None:
        for number in range(3):
            # The bounds of geometries are points: two doubles.
            points = [struct.pack("<2d", number, x) for x in (1.0, 2.0)]
            table = pa.table({"id": [2 * number, 2 * number + 1], "g": points})
            pq.write_table(table, tmp_path / f"{number}.parquet")
            lake.ok("ingest", "db.t", tmp_path / f"{number}.parquet", *(() if number else options))

    return made


VERSION_3 = ("--create", "--property", "format-version=3")
TYPES = ("variant", "geometry(srid:3857)", "geography(srid:4326, karney)")


def ids(lake: CommandLine, *options: Any) -> list[int]:
    return sorted(row["id"] for row in lake.scanned("--select", "id", *options))


@pytest.mark.parametrize("text", TYPES)
def test_what_does_not_touch_a_column_of_a_foreign_type_works(
    lake: CommandLine, warehouse: Path, make: Make, text: str
) -> None:
    make(*VERSION_3)
    edit_metadata(warehouse, retype("g", text))

    assert len(lake.ok("snapshots", "db.t")["result"]["snapshots"]) == 3
    assert ids(lake) == [0, 1, 2, 3, 4, 5]
    assert ids(lake, "--where", "id > 3") == [4, 5]
    assert lake.ok("scan", "db.t", "--plan")["status"] == "done"
    assert lake.ok("compact", "db.t", "--dry-run")["status"] == "dry-run"
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")

    (schema,) = read_metadata(warehouse)["schemas"]
    assert [field["type"] for field in schema["fields"]] == ["long", text]
    assert ids(lake) == [0, 1, 2, 3, 4, 5]


def test_statistics_of_an_open_blob_type_are_kept_by_a_commit(
    lake: CommandLine, warehouse: Path, make: Make
) -> None:
    make("--create")

    def analysed(plain: dict[str, Any]) -> None:
        snapshot = plain["current-snapshot-id"]
        blob = {"type": "ndv", "snapshot-id": snapshot, "sequence-number": 3, "fields": [1]}
        plain["statistics"] = [
            {
                "snapshot-id": snapshot,
                "statistics-path": f"file://{metadata_path(warehouse).parent}/x.stats",
                "file-size-in-bytes": 9,
                "file-footer-size-in-bytes": 4,
                "blob-metadata": [blob],
            }
        ]

    before = edit_metadata(warehouse, analysed)["statistics"]
    lake.ok("compact", "db.t")

    assert len(lake.ok("snapshots", "db.t")["result"]["snapshots"]) >= 3
    assert read_metadata(warehouse)["statistics"] == before


@pytest.mark.parametrize(
    "command",
    [
        ("snapshots", "db.t"),
        ("scan", "db.t"),
        ("expire", "db.t"),
        ("compact", "db.t", "--dry-run"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda plain: plain.update({"format-version": 4}), "format version 4"),
        (retype("g", "tensor"), "column g has the type 'tensor'"),
    ],
    ids=["version", "type"],
)
def test_what_lake_does_not_support_is_refused_by_its_name(
    lake: CommandLine,
    warehouse: Path,
    make: Make,
    command: tuple[str, ...],
    change: Callable[[dict[str, Any]], None],
    named: str,
) -> None:
    make("--create")
    edit_metadata(warehouse, change)

    refused = lake("--json", *command)

    assert refused.exit_code == 3
    assert refused.json()["error"]["kind"] == "refused"
    assert named in refused.json()["error"]["message"]


@pytest.mark.parametrize("keeps_column", [True, False])
def test_rows_are_written_with_a_void_field_whose_column_they_lack(
    lake: CommandLine, tmp_path: Path, keeps_column: bool
) -> None:
    source, changes = tmp_path / "rows.csv", tmp_path / "changes.csv"
    source.write_text("id,day\n1,a\n2,b\n")
    version_1 = ("--property", "format-version=1")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "day", *version_1)
    # In format version 1 a field that is removed stays, and is void.
    lake.ok("alter", "db.t", "--partition-by", "")
    if not keeps_column:
        with lake.table().update_schema() as change:
            change.delete_column("day")
    source.write_text("id,more\n3,1\n4,1\n")
    lake.ok("ingest", "db.t", source, "--evolve")
    changed = lake.ok("alter", "db.t", "--partition-by", "bucket(4, id)", "--dry-run")
    left = "void(day)" if keeps_column else "void(column 2)"
    assert changed["plan"]["partition_by"] == [left, "bucket(4, id)"]
    lake.ok("alter", "db.t", "--format-version", "2")
    source.write_text("id,more\n4,2\n5,2\n")
    changes.write_text("op,id,more\n-D,1,\n+I,6,3\n")

    by_key = ("--key", "id", "--missing", "default")
    lake.ok("ingest", "db.t", source, "--upsert", "--deletes", "equality", *by_key)
    log = ("--changes-column", "op", "--changes-mode", "upsert", *by_key)
    lake.ok("ingest", "db.t", changes, *log)
    lake.ok("deletes", "db.t", "--convert")

    found = lake.table().scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [2, 3, 4, 5, 6]
