"""Rewrites of position deletes: Java must find the same rows afterwards, and delete more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer

pytestmark = pytest.mark.java


@pytest.mark.parametrize(
    ("version", "granularity", "partitioned"),
    [("2", "file", False), ("2", "partition", True), ("3", "partition", True)],
)
def test_java_finds_the_same_rows(
    warehouse: Path, java: JavaPeer, version: str, granularity: str, partitioned: bool
) -> None:
    lake = CommandLine(warehouse, engine="inline")
    properties = {
        "write.delete.mode": "merge-on-read",
        "write.distribution-mode": "none",
        "write.delete.distribution-mode": "none",
        "write.delete.granularity": "partition",
    }
    options = [part for item in properties.items() for part in ("--property", "=".join(item))]
    by = ("--partition-by", "part") if partitioned else ()
    columns = ("id long", "part long")
    lake.ok("create", "db.t", *columns, "--format-version", "2", *options, *by)
    for start in (0, 300):
        java.sql(
            warehouse, f"INSERT INTO lake.db.t SELECT id, id % 3 FROM range({start}, {start + 300})"
        )
    for number in range(4):
        java.sql(warehouse, f"DELETE FROM lake.db.t WHERE id % 50 = {number}")
    if version == "3":
        lake.ok("alter", "db.t", "--format-version", "3")
        java.sql(warehouse, "DELETE FROM lake.db.t WHERE id = 30")
    lake.ok("alter", "db.t", "--set", f"write.delete.granularity={granularity}")
    before = java.checksum(warehouse, "db.t")
    listed = lake.ok("deletes", "db.t")["result"]["delete_files"]
    data = java.sql(warehouse, "SELECT file_path FROM lake.db.t.data_files ORDER BY 1")

    done = lake.ok("deletes", "db.t", "--rewrite")

    assert 0 < done["result"]["added_deletes"] < len(listed)
    assert java.checksum(warehouse, "db.t") == before
    assert java.sql(warehouse, "SELECT file_path FROM lake.db.t.data_files ORDER BY 1") == data
    formats = java.sql(warehouse, "SELECT DISTINCT file_format f FROM lake.db.t.delete_files")
    assert formats == [{"f": "PUFFIN" if version == "3" else "PARQUET"}]
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE id % 50 = 7")
    left = java.checksum(warehouse, "db.t")
    assert left["rows"] == before["rows"] - 12
    lake.ok("deletes", "db.t", "--rewrite")
    assert java.checksum(warehouse, "db.t") == left
    lake.ok("compact", "db.t", "--rewrite-all", "--remove-dangling-deletes")
    assert java.checksum(warehouse, "db.t") == left


@pytest.mark.parametrize(("version", "granularity"), [("2", "file"), ("3", "partition")])
def test_java_finds_the_same_rows_after_each_commit_of_a_part(
    warehouse: Path, java: JavaPeer, version: str, granularity: str
) -> None:
    lake = CommandLine(warehouse, engine="inline")
    properties = {
        "write.delete.mode": "merge-on-read",
        "write.delete.granularity": "partition",
    }
    options = [part for item in properties.items() for part in ("--property", "=".join(item))]
    lake.ok("create", "db.t", "id long", "part long", "--format-version", "2", *options)
    for start in (0, 300, 600):
        java.sql(
            warehouse, f"INSERT INTO lake.db.t SELECT id, id % 3 FROM range({start}, {start + 300})"
        )
    for number in range(5):
        scope = "file" if number % 2 else "partition"
        lake.ok("alter", "db.t", "--set", f"write.delete.granularity={scope}")
        java.sql(warehouse, f"DELETE FROM lake.db.t WHERE id % 50 = {number}")
    if version == "3":
        lake.ok("alter", "db.t", "--format-version", "3")
    lake.ok("alter", "db.t", "--set", f"write.delete.granularity={granularity}")
    before = java.checksum(warehouse, "db.t")
    snapshots: list[str] = []

    for limits in (("--max-files", "3"), ("--partial-progress", "--max-commits", "3")):
        result = lake("--json", "deletes", "db.t", "--rewrite", *limits).json()
        snapshots += result["snapshot_ids"]

    assert len(snapshots) > 2
    assert result["status"] == "done"
    for snapshot_id in snapshots:
        found = java.checksum(warehouse, "db.t", f"VERSION AS OF {snapshot_id}")
        assert found == before
    assert lake.ok("deletes", "db.t", "--rewrite")["status"] == "nothing-to-do"
