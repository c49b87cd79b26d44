"""Compaction of tables from which Iceberg Java deleted rows: Java must find the same rows afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog
from support.tiers import in_turn

pytestmark = pytest.mark.java

MERGE = (
    "MERGE INTO lake.db.t AS t USING (SELECT id, 'new' AS name FROM VALUES (12), (55), (999) AS v(id)) AS s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name "
    "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
)


def filled(warehouse: Path, java: JavaPeer, version: int, *, partitioned: bool = False) -> None:
    """Let Java make a table of small files and change it by merge-on-read."""
    pyiceberg_catalog(warehouse).create_namespace("db")
    by = "PARTITIONED BY (bucket(2, id))" if partitioned else ""
    java.sql(
        warehouse,
        f"CREATE TABLE lake.db.t (id BIGINT, name STRING) USING iceberg {by} TBLPROPERTIES ("
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.merge.mode'='merge-on-read', 'write.delete.granularity'='partition')",
    )
    for start in range(0, 60, 20):
        java.sql(
            warehouse,
            f"INSERT INTO lake.db.t SELECT id, concat('n', id) FROM range({start}, {start + 20}) AS v(id)",
        )
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE id % 7 = 3")
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE id IN (0, 59)")
    java.sql(warehouse, MERGE)


@pytest.mark.parametrize(
    ("engine", "partitioned"),
    in_turn([("inline",), ("spark",)], [False, True]),
)
def test_version_2_keeps_its_rows(
    warehouse: Path, java: JavaPeer, engine: str, partitioned: bool
) -> None:
    filled(warehouse, java, 2, partitioned=partitioned)
    lake = CommandLine(warehouse, engine=engine)
    before = java.checksum(warehouse, "db.t")
    preview = lake.ok("scan", "db.t", "--where", "id = 12")["result"]["preview"]

    done = lake.ok("compact", "db.t", "--verify", "--option", "min-input-files=2")

    assert preview == [{"id": 12, "name": "new"}]
    assert done["result"]["rows_dropped_by_deletes"] > 0
    assert java.checksum(warehouse, "db.t") == before


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_version_3_keeps_its_rows_and_their_ids(
    warehouse: Path, java: JavaPeer, engine: str
) -> None:
    filled(warehouse, java, 3)
    ids = "SELECT id, name, _row_id, _last_updated_sequence_number FROM lake.db.t ORDER BY id"
    before = java.sql(warehouse, ids)

    done = CommandLine(warehouse, engine=engine).ok(
        "compact", "db.t", "--verify", "--option", "min-input-files=2"
    )

    assert done["result"]["removed_delete_files"] > 0
    assert java.sql(warehouse, ids) == before
    left = java.sql(warehouse, "SELECT count(*) AS n FROM lake.db.t.delete_files")
    assert left == [{"n": 0}]
    java.sql(warehouse, "INSERT INTO lake.db.t VALUES (5000, 'later')")
    numbers = [row["_row_id"] for row in java.sql(warehouse, ids)]
    assert len(set(numbers)) == len(numbers)
