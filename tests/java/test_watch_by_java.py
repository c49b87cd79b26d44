"""Tables that a watch and a follower fill while Spark commits, compacts and expires: Iceberg Java counts each row."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table

pytestmark = pytest.mark.java


def put(folder: Path, name: str, *ids: int) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("id,name\n" + "".join(f"{one},n{one}\n" for one in ids))
    moment = time.time() - 60
    os.utime(path, (moment, moment))


def test_rows_are_there_once_whatever_spark_does_between_epochs(java: Any, tmp_path: Path) -> None:
    warehouse, drop = tmp_path / "warehouse", tmp_path / "drop"
    lake = CommandLine(warehouse, engine="inline")
    watch = ("ingest", "db.t", "--create", "--watch", drop, "--stream", "s", "--once")
    watch = (*watch, "--state", tmp_path / "state", "--done", "delete")
    copy = ("ingest", "db.c", "--create", "--from-table", "db.t", "--follow", "--stream", "c")
    expected: Counter[int] = Counter()
    for number in range(4):
        put(drop, f"{number}.csv", number, number + 100)
        expected.update((number, number + 100))
        lake.ok(*watch)
        lake.ok(*copy, "--once")
        java.sql(warehouse, f"INSERT INTO {{c}}.db.t VALUES ({number + 200}, 'spark')")
        expected[number + 200] += 1
        lake.ok(*copy, "--once")
        for table in ("db.t", "db.c"):
            java.sql(warehouse, f"INSERT INTO {{c}}.{table} VALUES (-1, 'last')")
            java.sql(
                warehouse,
                f"CALL {{c}}.system.expire_snapshots(table => '{table}', retain_last => 1, "
                "older_than => current_timestamp())",
            )
        assert lake.ok(*watch)["status"] == "nothing-to-do"
        lake.ok(*copy, "--once")

    rows = java.sql(warehouse, "SELECT id FROM {c}.db.t WHERE id >= 0")
    copied = java.sql(warehouse, "SELECT id FROM {c}.db.c WHERE id >= 0")

    assert Counter(row["id"] for row in rows) == expected
    assert Counter(row["id"] for row in copied) == expected
    assert len(pyiceberg_table(warehouse, "db.c").properties["lake.streams"]) < 250
