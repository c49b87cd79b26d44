"""Upserts judged by Iceberg Java: its rows after each mode, before and after deletes of its own."""

from __future__ import annotations

import itertools
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog
from support.tiers import in_turn

pytestmark = pytest.mark.java

MODES = ("position", "equality", "copy-on-write")
Rows = dict[int, tuple[str | None, float | None]]


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


@pytest.mark.parametrize(
    ("mode", "partitioning", "version"),
    in_turn(product(MODES, ["", "part", "bucket(3, id)"]), [2, 3]),
)
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


def _csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("mode", ["position", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_rows_that_are_merged_by_column(
    warehouse: Path, tmp_path: Path, java: JavaPeer, mode: str, version: int
) -> None:
    target = UpsertedTable(warehouse, tmp_path, java, version, "part")
    target.upsert(rows(range(40), "a", 1.0), "position")
    target.delete(5)
    partial = ("--upsert", "--key", "id", "--merge", "partial-update", "--deletes", mode)
    lake = CommandLine(warehouse)
    moved = _csv(tmp_path / "moved.csv", "id,part", *(f"{one},b" for one in range(0, 50, 5)))
    found = lake.ok("ingest", "db.t", moved, *partial)["result"]
    assert (found["rows_inserted"], found["rows_updated"]) == (3, 7)
    values = _csv(tmp_path / "values.csv", "id,part,value", "0,,7", "1,,7", "2,c,", "5,,7", "45,,7")
    found = lake.ok("ingest", "db.t", values, *partial)["result"]
    assert (found["rows_inserted"], found["rows_updated"]) == (0, 5)
    merged: Rows = {one: (f"a{one % 2}", 1.0) for one in range(40) if one != 5}
    merged |= {one: ("b", 1.0 if one in merged else None) for one in range(0, 50, 5)}
    merged |= {0: ("b", 7.0), 1: ("a1", 7.0), 2: ("c", 1.0), 5: ("b", 7.0), 45: ("b", 7.0)}
    target.model = merged
    target.check()


@pytest.mark.parametrize("mode", ["position", "copy-on-write"])
def test_java_reads_merged_rows_with_their_row_ids(
    warehouse: Path, tmp_path: Path, java: JavaPeer, mode: str
) -> None:
    target = UpsertedTable(warehouse, tmp_path, java, 3)
    identity = "SELECT id, _row_id, _last_updated_sequence_number AS at FROM lake.db.t"
    target.upsert(rows(range(10), "a", 1.0), "position")
    before = {row["id"]: (row["_row_id"], row["at"]) for row in target.sql(identity)}
    partial = ("--upsert", "--key", "id", "--merge", "partial-update", "--deletes", mode)
    source = _csv(tmp_path / "some.csv", "id,value", "4,2", "5,2", "10,2")
    CommandLine(warehouse).ok("ingest", "db.t", source, *partial)
    target.model |= {4: ("a0", 2.0), 5: ("a1", 2.0), 10: (None, 2.0)}
    target.check()
    after = {row["id"]: (row["_row_id"], row["at"]) for row in target.sql(identity)}
    assert {one: after[one][0] for one in before} == {one: before[one][0] for one in before}
    changed = {one for one in before if after[one] != before[one]}
    assert changed == {4, 5}
    assert {after[one][1] for one in (4, 5, 10)} == {2}
    assert len({row_id for row_id, _ in after.values()}) == 11


@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_newer_rows_and_first_rows(
    warehouse: Path, tmp_path: Path, java: JavaPeer, version: int
) -> None:
    target = UpsertedTable(warehouse, tmp_path, java, version, "part")
    target.upsert(rows(range(10), "a", 5.0), "position")
    target.delete(3)
    lake = CommandLine(warehouse)
    by_key = ("--upsert", "--key", "id")
    late = _csv(tmp_path / "late.csv", "id,part,value", "1,late,4", "2,new,6", "3,back,1", "11,n,")
    found = lake.ok("ingest", "db.t", late, *by_key, "--sequence", "value")["result"]
    assert (found["rows_stale"], found["rows_updated"], found["rows_inserted"]) == (1, 1, 2)
    first = _csv(tmp_path / "first.csv", "id,part,value", "1,x,9", "11,x,9", "12,x,9", "12,y,9")
    found = lake.ok("ingest", "db.t", first, *by_key, "--merge", "first-row")["result"]
    assert (found["rows_skipped"], found["rows_inserted"]) == (2, 1)
    target.model |= {2: ("new", 6.0), 3: ("back", 1.0), 11: ("n", None), 12: ("x", 9.0)}
    target.check()
