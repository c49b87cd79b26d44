"""Java reads exactly the source's rows from the tables among which a load divides them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.faults.killed_runs import SENT, killed

pytestmark = pytest.mark.java


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    moment = time.time() - 60
    os.utime(path, (moment, moment))
    return path


def test_java_reads_each_row_once_from_the_table_of_its_value(java: Any, tmp_path: Path) -> None:
    warehouse, drop = tmp_path / "warehouse", tmp_path / "drop"
    lake = CommandLine(warehouse, engine="inline")
    watch = ("ingest", "db.{kind}", "--create", "--route", "kind", "--watch", drop, "--stream", "s")
    watch = (*watch, "--state", tmp_path / "state", "--once", "--commit-files", "2")
    kinds = ("a", "b", "c")
    expected: Counter[tuple[str, int]] = Counter()
    for number in range(3):
        rows = [{"kind": kind, "id": one} for one in range(4) for kind in kinds]
        for one in range(3):
            put(drop, f"{number}-{one}.json", rows)
            expected.update((row["kind"], row["id"]) for row in rows)
        killed(lake, SENT, *watch)
        # Another writer's commit between the tables of an epoch does not hide it.
        java.sql(warehouse, "INSERT INTO {c}.db.a VALUES ('a', -1)")
        lake.ok(*watch)

    log = put(
        drop.parent / "log",
        "log.json",
        [
            {"op": "+I", "kind": "y", "id": 1},
            {"op": "+I", "kind": "y", "id": 2},
            {"op": "-U", "kind": "y", "id": 1},
            {"op": "+U", "kind": "z", "id": 1},
            {"op": "-D", "kind": "y", "id": 2},
            {"op": "+I", "kind": "y", "id": 3},
        ],
    )
    changes = ("--changes-column", "op", "--changes-mode", "retract", "--key", "id")
    lake.ok("ingest", "db.{kind}", log, "--create", "--route", "kind", *changes)

    every = " UNION ALL ".join(f"SELECT kind, id FROM {{c}}.db.{kind}" for kind in "abcyz")
    found = Counter(
        (row["kind"], row["id"]) for row in java.sql(warehouse, every) if row["id"] >= 0
    )
    assert found == expected + Counter([("y", 3), ("z", 1)])


def test_java_reads_one_row_of_a_key_that_moved_within_the_table_of_its_value(
    java: Any, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    lake = CommandLine(warehouse, engine="inline")
    route = ("--create", "--partition-by", "day", "--route", "kind", "--key", "id")
    route = (*route, "--changes-column", "op", "--changes-mode", "upsert", "--deletes", "position")
    for number, changes in enumerate(
        (
            [("+I", "a", 1, 1), ("+I", "a", 2, 1), ("+I", "b", 1, 1)],
            [("+U", "a", 1, 2), ("-D", "a", 2, None), ("+U", "b", 1, 3), ("+U", "b", 1, 4)],
        )
    ):
        names = ("op", "kind", "id", "day")
        rows = [dict(zip(names, change, strict=True)) for change in changes]
        lake.ok("ingest", "db.{kind}", put(tmp_path / "log", f"{number}.json", rows), *route)

    every = "SELECT kind, id, day FROM {c}.db.a UNION ALL SELECT kind, id, day FROM {c}.db.b"
    found = sorted(tuple(row.values()) for row in java.sql(warehouse, every))
    assert found == [("a", 1, 2), ("b", 1, 4)]
