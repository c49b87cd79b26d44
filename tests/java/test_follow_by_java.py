"""A follower of a table that Spark writes and expires, judged by Iceberg Java's `IncrementalAppendScan`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

INSERT = "INSERT INTO {{c}}.db.t SELECT id, concat('n', id) name FROM range({}, {})"
Rows = Counter[tuple[int, str]]


class Cron:
    """A follower that runs once after each commit or after several, and a loader that deletes what it read."""

    def __init__(self, lake: CommandLine, folder: Path, *options: object) -> None:
        self._lake, self._out = lake, folder / "out"
        self._line = (
            *("scan", "db.t", "--follow", "--once", "--state", folder / "state"),
            *("--output", self._out, *options),
        )
        self.position: str | None = None

    def run(self, *options: object, code: int = 0) -> list[dict[str, Any]]:
        """Run once; return the rows of its epochs."""
        result = self._lake("--json", *self._line, *options)
        assert result.exit_code == code, result
        self.position = result.json()["result"]["position"]["snapshot_id"]
        rows: list[dict[str, Any]] = []
        for epoch in sorted(self._out.glob("epoch-*")):
            for item in json.loads((epoch / "_epoch.json").read_text())["files"]:
                rows += pq.read_table(epoch / item["name"]).to_pylist()
            shutil.rmtree(epoch)
        return rows


def counted(rows: list[dict[str, Any]]) -> Rows:
    return Counter((row["id"], row["name"]) for row in rows)


def make(java: Any, warehouse: Path, mode: str, version: int = 2) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, name STRING) USING iceberg"
        f" TBLPROPERTIES ('format-version' = '{version}', 'commit.manifest.min-count-to-merge' = '3', {modes})",
    )


def test_appends_are_those_of_javas_incremental_scan(
    java: Any, lake: CommandLine, tmp_path: Path
) -> None:
    make(java, lake.warehouse, "merge-on-read")
    cron = Cron(lake, tmp_path)
    java.sql(lake.warehouse, INSERT.format(0, 5))
    assert counted(cron.run()) == counted(java.sql(lake.warehouse, "SELECT * FROM {c}.db.t"))
    for statements in (
        [INSERT.format(5, 9)],
        [INSERT.format(9, 12), "DELETE FROM {c}.db.t WHERE id % 5 = 0", INSERT.format(12, 20)],
        [
            "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))"
        ],
        [
            "UPDATE {c}.db.t SET name = 'x' WHERE id = 6",
            "CALL {c}.system.rewrite_manifests('db.t')",
            INSERT.format(20, 25),
            INSERT.format(20, 25),
        ],
    ):
        start = cron.position
        for statement in statements:
            java.sql(lake.warehouse, statement)
        found = counted(cron.run())

        options = {"start-snapshot-id": start, "end-snapshot-id": cron.position}
        assert found == counted(java.read(lake.warehouse, "db.t", **options))
    assert cron.run() == []


@pytest.mark.parametrize(
    ("mode", "version", "engine"),
    [
        ("copy-on-write", 2, "inline"),
        # Java writes deletion vectors in version 3.
        ("merge-on-read", 3, "inline"),
        pytest.param("merge-on-read", 2, "spark", marks=[pytest.mark.slow, pytest.mark.spark]),
    ],
)
def test_changes_lead_to_the_rows_that_java_reads_and_an_expiry_by_spark_is_a_gap(
    java: Any, warehouse: Path, tmp_path: Path, mode: str, version: int, engine: str
) -> None:
    lake = CommandLine(warehouse, engine=engine)
    make(java, warehouse, mode, version)
    java.sql(lake.warehouse, INSERT.format(0, 20))
    cron = Cron(lake, tmp_path, "--changes", "--key", "id")
    rows = counted(cron.run())
    for statement in (
        "UPDATE {c}.db.t SET name = upper(name) WHERE id % 4 = 0",
        "DELETE FROM {c}.db.t WHERE id % 7 = 3",
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
        "INSERT OVERWRITE {c}.db.t SELECT id, 'o' name FROM range(10, 14)",
    ):
        java.sql(lake.warehouse, statement)
        for row in cron.run():
            taken = row["_change_type"] in {"delete", "update_before"}
            rows[row["id"], row["name"]] += -1 if taken else 1
    assert min(rows.values()) == 0
    assert +rows == counted(java.sql(lake.warehouse, "SELECT * FROM {c}.db.t"))

    java.sql(lake.warehouse, INSERT.format(30, 31))
    java.sql(lake.warehouse, INSERT.format(31, 32))
    java.sql(
        lake.warehouse,
        "CALL {c}.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2999-01-01',"
        " retain_last => 1)",
    )
    assert cron.run(code=7) == []
    skipped = cron.run("--on-gap", "skip", code=6)
    assert [(row["id"], row["_change_type"]) for row in skipped] == [(31, "insert")]
