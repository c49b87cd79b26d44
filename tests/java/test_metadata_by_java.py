"""Table metadata that Iceberg Java loads after lake's commits, and that lake reads after Java's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.faults.store_time import store_time_of_commands
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import FixedClock
from support.tables.metadata_edits import edit_metadata, java_would_refuse, read_metadata

from lake.core.base.settings import Settings
from lake.core.table.catalogs.selection import open_catalog
from lake.core.transaction.session import Session

pytestmark = pytest.mark.java

# Recent, as Java's own commits take their time from the true clock.
NOW = 1_700_000_000_000
MINUTE = 60_000


def ingest(lake: CommandLine, folder: Path, number: int, *options: str) -> None:
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({"id": [number]}), path)
    lake.ok("ingest", "db.t", path, *options)


def ids(lake: CommandLine) -> list[int]:
    return sorted(row["id"] for row in lake.scanned("--select", "id"))


def ids_of(java: JavaPeer, warehouse: Path, table: str) -> list[int]:
    return [row["id"] for row in java.sql(warehouse, f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.parametrize(("catalog_type", "table"), [("sql", "lake.db.t"), ("hadoop", "{h}.db.t")])
def test_java_loads_a_table_after_each_step_of_the_clock(
    java: JavaPeer, warehouse: Path, tmp_path: Path, catalog_type: str, table: str
) -> None:
    clock = FixedClock(NOW)

    def opened(settings: Settings) -> Session:
        session = Session(settings=settings, catalog=open_catalog(settings))
        session.clock = clock
        return session

    warehouse.mkdir()
    lake = CommandLine(warehouse, catalog_type=catalog_type, open_session=opened)
    for number, minutes in enumerate((0, 5, 0, 4000, 3, -90)):
        clock.now = NOW + minutes * MINUTE
        ingest(lake, tmp_path, number, *(() if number else ("--create",)))
        assert ids_of(java, warehouse, table) == list(range(number + 1))
    clock.now = NOW + 2 * MINUTE
    lake.ok("compact", "db.t")
    assert ids_of(java, warehouse, table) == list(range(6))
    first = read_metadata(warehouse)["snapshots"][0]["snapshot-id"]
    clock.now = NOW - MINUTE * 600
    with store_time_of_commands():
        lake.ok("expire", "db.t", "--snapshot", str(first))
    assert ids_of(java, warehouse, table) == list(range(6))

    java.sql(warehouse, f"INSERT INTO {table} VALUES (6)")
    ingest(lake, tmp_path, 7)

    assert ids_of(java, warehouse, table) == ids(lake) == list(range(8))
    assert java_would_refuse(read_metadata(warehouse)) == []


def test_java_loads_a_table_again_whose_times_other_writers_disordered(
    java: JavaPeer, warehouse: Path, tmp_path: Path
) -> None:
    lake = CommandLine(warehouse)
    for number in range(4):
        ingest(lake, tmp_path, number, *(() if number else ("--create",)))

    def disorder(plain: dict[str, Any]) -> None:
        plain["snapshot-log"][1]["timestamp-ms"] += 7 * MINUTE
        plain["metadata-log"][0]["timestamp-ms"] += 9 * MINUTE
        plain["last-updated-ms"] -= 20 * MINUTE

    edit_metadata(warehouse, disorder)
    # Java itself asks again for 90 s before it refuses the table.
    assert java_would_refuse(read_metadata(warehouse)) != []

    ingest(lake, tmp_path, 4)

    assert ids_of(java, warehouse, "lake.db.t") == ids(lake) == list(range(5))


def test_keys_and_unknown_members_survive_lakes_commits_and_javas_between_them(
    java: JavaPeer, warehouse: Path, tmp_path: Path
) -> None:
    lake = CommandLine(warehouse)
    ingest(lake, tmp_path, 0, "--create", "--property", "format-version=3")
    ingest(lake, tmp_path, 1)
    keys = [{"key-id": "k1", "encrypted-key-metadata": "bm90aGluZw==", "encrypted-by-id": "k0"}]

    def mark(plain: dict[str, Any]) -> None:
        plain["encryption-keys"] = keys
        plain["x-future"] = {"a": 1}
        plain["snapshots"][0]["key-id"] = "k1"

    edit_metadata(warehouse, mark)
    ingest(lake, tmp_path, 2)
    kept = read_metadata(warehouse)
    assert (kept["encryption-keys"], kept["x-future"]) == (keys, {"a": 1})
    assert kept["snapshots"][0]["key-id"] == "k1"

    assert ids_of(java, warehouse, "lake.db.t") == [0, 1, 2]
    java.sql(warehouse, "INSERT INTO lake.db.t VALUES (3)")
    assert read_metadata(warehouse)["encryption-keys"] == keys
    lake.ok("compact", "db.t")

    found = read_metadata(warehouse)
    assert found["encryption-keys"] == keys
    assert found["snapshots"][0]["key-id"] == "k1"
    assert ids_of(java, warehouse, "lake.db.t") == ids(lake) == [0, 1, 2, 3]


def test_a_table_of_java_with_variants_is_maintained_where_no_variant_is_touched(
    java: JavaPeer, warehouse: Path, tmp_path: Path
) -> None:
    lake = CommandLine(warehouse)
    ingest(lake, tmp_path, 0, "--create", "--property", "format-version=3")
    java.sql(warehouse, "ALTER TABLE lake.db.t ADD COLUMN v VARIANT")
    for number in (1, 2):
        java.sql(
            warehouse, f"""INSERT INTO lake.db.t SELECT {number}, parse_json('{{"a": {number}}}')"""
        )

    assert len(lake.ok("snapshots", "db.t")["result"]["snapshots"]) == 3
    assert lake.ok("scan", "db.t", "--plan")["status"] == "done"
    assert lake.ok("compact", "db.t", "--dry-run")["status"] == "dry-run"
    first = read_metadata(warehouse)["snapshots"][0]["snapshot-id"]
    lake.ok("expire", "db.t", "--snapshot", str(first))

    assert ids(lake) == [0, 1, 2]
    rows = java.sql(warehouse, "SELECT id, to_json(v) v FROM lake.db.t ORDER BY id")
    assert [row["v"] for row in rows] == [None, '{"a":1}', '{"a":2}']
