"""Tables that say where their files go: Java writes them to the same places, and works on with lake's."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

SETTINGS = {
    "hashed elsewhere": ("true", "true", True),
    "flat": ("true", "false", False),
    "flat elsewhere": ("true", "false", True),
}


def shape(path: str) -> str:
    """Return a path with what differs from file to file, the hash and the name, as one letter each."""
    folder, _, name = path.removeprefix("file:").replace("///", "/").rpartition("/")
    dashed = re.fullmatch(r"([01]{8})-.*", name)
    return re.sub("[01]", "h", folder) + ("/h-n" if dashed else "/n")


@pytest.mark.parametrize(
    "setting",
    [
        "hashed elsewhere",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("flat", "flat elsewhere")),
    ],
)
def test_lake_and_java_put_files_into_the_same_places_and_clear_each_others(
    warehouse: Path, tmp_path: Path, java: JavaPeer, setting: str
) -> None:
    spread, by_partition, outside = SETTINGS[setting]
    pyiceberg_catalog(warehouse).create_namespace("db")
    place = tmp_path / "other" / "data" if outside else warehouse / "db" / "t" / "data"
    chosen = f", 'write.data.path' = 'file://{place}'" if outside else ""
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part) "
        f"TBLPROPERTIES ('write.object-storage.enabled' = '{spread}', 'format-version' = '2', "
        f"'write.object-storage.partitioned-paths' = '{by_partition}', "
        f"'write.delete.mode' = 'merge-on-read'{chosen})",
    )
    lake = CommandLine(warehouse, engine="inline")
    source = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "part": ["a", "b", "a"]}), source)

    def places() -> dict[str, str]:
        found = java.sql(warehouse, "SELECT file_path FROM {c}.db.t.all_files")
        return {row["file_path"]: shape(row["file_path"]) for row in found}

    def rows() -> list[tuple[int, str]]:
        found = java.sql(warehouse, "SELECT id, part FROM {c}.db.t")
        return sorted((row["id"], row["part"]) for row in found)

    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (11, 'a'), (12, 'b'), (13, 'a')")
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 11")
    theirs = places()
    lake.ok("ingest", "db.t", source)
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id", "--deletes", "position")
    lake.ok("compact", "db.t", "--rewrite-all")
    ours = {path: kind for path, kind in places().items() if path not in theirs}

    assert set(ours.values()) == set(theirs.values())
    expected = [(1, "a"), (2, "b"), (3, "a"), (12, "b"), (13, "a")]
    assert rows() == expected
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (14, 'a')")
    java.sql(
        warehouse,
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    )
    java.sql(
        warehouse,
        "CALL {c}.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2999-01-01')",
    )
    assert rows() == [*expected, (14, "a")]
    live = java.sql(warehouse, "SELECT file_path FROM {c}.db.t.files")
    # No file of either is left over.
    left = [path for path in place.rglob("*.parquet") if path.is_file()]
    assert len(left) == len(live)
