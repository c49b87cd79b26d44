"""Upserts judged by Iceberg Java: its rows after each mode, before and after deletes of its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

MODES = ("position", "equality", "copy-on-write")
Rows = dict[int, tuple[str, float]]


class UpsertedTable:
    """A table that Java made, and what it should hold."""

    def __init__(
        self, warehouse: Path, folder: Path, java: JavaPeer, version: int, partitioning: str = ""
    ) -> None:
        self.warehouse, self.folder, self.java = warehouse, folder, java
        self.lake = CommandLine(warehouse, engine="inline")
        self.model: Rows = {}
        self._numbers = itertools.count()
        pyiceberg_catalog(warehouse).create_namespace("db")
        by = f"PARTITIONED BY ({partitioning})" if partitioning else ""
        self.sql(
            f"CREATE TABLE lake.db.t (id BIGINT, part STRING, value DOUBLE) USING iceberg {by} "
            f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', "
            "'write.merge.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self.java.sql(self.warehouse, statement)

    def upsert(self, rows: Rows, mode: str, key: str = "id") -> dict[str, Any]:
        """Upsert rows, here and in the model; return the result's numbers."""
        path = self.folder / f"rows-{next(self._numbers)}.parquet"
        columns = {
            "id": pa.array(list(rows), pa.int64()),
            "part": [part for part, _ in rows.values()],
            "value": [value for _, value in rows.values()],
        }
        pq.write_table(pa.table(columns), path)
        done = self.lake.ok("ingest", "db.t", path, "--upsert", "--key", key, "--deletes", mode)
        self.model |= rows
        result: dict[str, Any] = done["result"]
        return result

    def delete(self, *ids: int) -> None:
        """Let Java delete rows, merging on read."""
        self.sql(f"DELETE FROM lake.db.t WHERE id IN ({', '.join(map(str, ids))})")
        for number in ids:
            self.model.pop(number, None)

    def check(self) -> None:
        """Compare Java's rows with the model."""
        found = self.sql("SELECT id, part, value FROM lake.db.t")
        assert len(found) == len(self.model)
        assert {row["id"]: (row["part"], row["value"]) for row in found} == self.model


def rows(ids: range, part: str, value: float) -> Rows:
    return {number: (f"{part}{number % 2}", value) for number in ids}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("partitioning", ["", "part", "bucket(3, id)"])
@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_each_key_once(
    warehouse: Path, tmp_path: Path, java: JavaPeer, mode: str, partitioning: str, version: int
) -> None:
    target = UpsertedTable(warehouse, tmp_path, java, version, partitioning)
    blind = mode == "equality"
    # Blind deletes are for one partition: there a row must not move.
    other, key = ("a", "id,part") if blind and partitioning == "part" else ("b", "id")
    target.upsert(rows(range(100), "a", 1.0), mode, key)
    target.check()
    target.delete(3, 50, 51)
    found = target.upsert(rows(range(40, 60), other, 2.0), mode, key)
    assert blind or (found["rows_inserted"], found["rows_updated"]) == (2, 18)
    target.check()
    found = target.upsert(rows(range(45, 120), other, 3.0), mode, key)
    assert blind or (found["rows_inserted"], found["rows_updated"]) == (20, 55)
    target.check()
    target.delete(45, 119)
    target.check()


@pytest.mark.parametrize("mode", ["position", "copy-on-write"])
def test_position_deletes_of_version_2_count_after_an_upgrade(
    warehouse: Path, tmp_path: Path, java: JavaPeer, mode: str
) -> None:
    target = UpsertedTable(warehouse, tmp_path, java, 2)
    target.upsert(rows(range(20), "a", 1.0), "position")
    target.upsert(rows(range(5), "a", 2.0), "position")
    target.delete(7)
    target.sql("ALTER TABLE lake.db.t SET TBLPROPERTIES ('format-version' = '3')")
    found = target.upsert(rows(range(3, 9), "a", 3.0), mode)
    assert (found["rows_inserted"], found["rows_updated"]) == (1, 5)
    target.check()
    target.delete(8, 19)
    target.upsert(rows(range(18, 21), "a", 4.0), mode)
    target.check()


def test_rows_that_are_copied_keep_their_ids(
    warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    target = UpsertedTable(warehouse, tmp_path, java, 3)
    identity = "SELECT id, _row_id, _last_updated_sequence_number AS at FROM lake.db.t"
    target.upsert(rows(range(10), "a", 1.0), "copy-on-write")
    before = {row["id"]: (row["_row_id"], row["at"]) for row in target.sql(identity)}
    target.upsert(rows(range(4, 6), "a", 2.0), "copy-on-write")
    target.upsert(rows(range(9, 11), "a", 2.0), "copy-on-write")
    target.check()
    after = {row["id"]: (row["_row_id"], row["at"]) for row in target.sql(identity)}
    kept = set(range(10)) - {4, 5, 9}
    assert {number: after[number] for number in kept} == {number: before[number] for number in kept}
    assert len({row_id for row_id, _ in after.values()}) == 11
