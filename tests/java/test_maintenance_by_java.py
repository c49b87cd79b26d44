"""Iceberg Java reads tables whose manifests lake rewrote, and finds the orphan files that lake finds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine

pytestmark = pytest.mark.java


def load(lake: CommandLine, folder: Path, number: int, *more: str) -> None:
    file = folder / "rows.csv"
    file.write_text(f"id,day\n{number},a\n{number + 10},b\n{number + 20},\n")
    lake.ok("ingest", "db.t", file, *more)


@pytest.mark.parametrize("version", [1, 3])
def test_java_reads_the_same_rows_from_rewritten_manifests(
    java: Any, tmp_path: Path, version: int
) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    new = ("--create", "--partition-by", "day", "--property", f"format-version={version}")
    for number in range(4):
        load(lake, tmp_path, number, *new)
    if version > 1:
        load(lake, tmp_path, 2, "--upsert", "--key", "id", "--deletes", "position")
    files = "SELECT count(*) AS n, sum(record_count) AS r FROM lake.db.t.files"
    before = java.checksum(lake.warehouse, "db.t"), java.sql(lake.warehouse, files)

    lake.ok("manifests", "db.t", "--target-size", "10KB", "--rewrite-all")

    assert (java.checksum(lake.warehouse, "db.t"), java.sql(lake.warehouse, files)) == before
    load(lake, tmp_path, 30)
    rewrite = "CALL lake.system.rewrite_manifests('db.t')"
    java.sql(lake.warehouse, rewrite)
    assert (
        lake.ok("scan", "db.t", "--plan")["plan"]["records"]
        == java.sql(lake.warehouse, "SELECT sum(record_count) AS r FROM lake.db.t.data_files")[0][
            "r"
        ]
    )


def test_lake_finds_the_orphan_files_that_java_finds(java: Any, tmp_path: Path) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    for number in range(3):
        load(lake, tmp_path, number, "--create", "--partition-by", "day")
    root = lake.warehouse / "db" / "t"
    for name in ("data/lost.parquet", "data/day=a/lost.orc", "metadata/lost-m0.avro"):
        path = root / name
        path.write_text("lost")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    call = (
        "CALL lake.system.remove_orphan_files(table => 'db.t', dry_run => true, "
        "older_than => TIMESTAMP '2025-01-01 00:00:00')"
    )
    found = {
        Path(row["orphan_file_location"].removeprefix("file:"))
        for row in java.sql(lake.warehouse, call)
    }

    done = lake.ok("clean", "db.t", "--delete", "--max-share", "100%")

    assert len(found) == done["result"]["deleted"] == 3
    assert not any(path.exists() for path in found)
    assert java.sql(lake.warehouse, call) == []
