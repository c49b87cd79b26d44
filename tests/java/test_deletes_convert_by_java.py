"""Conversion of equality deletes: Java must find the same rows afterwards, and change them again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer

pytestmark = pytest.mark.java


def load(lake: CommandLine, lines: list[str], *options: str) -> None:
    lake.load("id,part,value\n" + "".join(f"{line}\n" for line in lines), *options)


@pytest.mark.parametrize(
    ("version", "partitioned"), [("2", True), ("2", False), ("3", True), ("3", False)]
)
def test_java_finds_the_same_rows(
    warehouse: Path, java: JavaPeer, version: str, partitioned: bool
) -> None:
    lake = CommandLine(warehouse, engine="inline")
    by = ("--partition-by", "part") if partitioned else ()
    # An upgraded table keeps the position delete files of version 2.
    created = ("--create", "--property", "format-version=2", *by)
    load(lake, [f"{number},{number % 3},1" for number in range(300)], *created)
    upsert = ("--upsert", "--key", "id,part")
    load(lake, [f"{number},{number % 3},2" for number in range(0, 300, 7)], *upsert)
    if version == "3":
        lake.ok("alter", "db.t", "--format-version", "3")
        load(lake, [f"{number},{number % 3},3" for number in range(0, 300, 11)], *upsert)
    for value, step in ((4, 5), (5, 13), (6, 14)):
        changed = [f"{number},{number % 3},{value}" for number in range(0, 310, step)]
        load(lake, changed, *upsert, "--deletes", "equality")
    before = java.checksum(warehouse, "db.t")

    done = lake.ok("deletes", "db.t", "--convert")

    assert done["result"]["removed_equality_deletes"] > 0
    assert java.checksum(warehouse, "db.t") == before
    contents = java.sql(warehouse, "SELECT DISTINCT content FROM lake.db.t.delete_files")
    assert contents == [{"content": 1}]
    java.sql(
        warehouse,
        "ALTER TABLE lake.db.t SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
    )
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE id % 10 = 3")
    left = java.checksum(warehouse, "db.t")
    assert left["rows"] == before["rows"] - 30
    lake.ok("compact", "db.t", "--rewrite-all")
    assert java.checksum(warehouse, "db.t") == left


@pytest.mark.parametrize(("version", "partitioned"), [("2", False), ("3", True)])
def test_java_finds_the_same_rows_after_each_commit_of_a_part(
    warehouse: Path, java: JavaPeer, version: str, partitioned: bool
) -> None:
    lake = CommandLine(warehouse, engine="inline")
    by = ("--partition-by", "part") if partitioned else ()
    created = ("--create", "--property", f"format-version={version}", *by)
    for start in range(0, 300, 50):
        lines = [f"{number},{number % 3},1" for number in range(start, start + 50)]
        load(lake, lines, *created)
        created = ()
    for value, step in ((4, 5), (5, 13), (6, 14)):
        changed = [f"{number},{number % 3},{value}" for number in range(0, 310, step)]
        load(lake, changed, "--upsert", "--key", "id,part", "--deletes", "equality")
    before = java.checksum(warehouse, "db.t")
    snapshots: list[str] = []

    for options in (("--max-files", "4"), ("--partial-progress", "--max-commits", "4")):
        result = lake("--json", "deletes", "db.t", "--convert", *options).json()
        snapshots += result["snapshot_ids"]

    assert len(snapshots) == 5
    assert result["status"] == "done"
    for snapshot_id in snapshots:
        found = java.checksum(warehouse, "db.t", f"VERSION AS OF {snapshot_id}")
        assert found == before
    contents = java.sql(warehouse, "SELECT DISTINCT content FROM lake.db.t.delete_files")
    assert contents == [{"content": 1}]
    lake.ok("compact", "db.t", "--rewrite-all")
    assert java.checksum(warehouse, "db.t") == before
