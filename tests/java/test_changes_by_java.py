"""Change logs of tables without delete files, compared with Iceberg Java's `create_changelog_view`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_catalog
from support.tiers import chosen, in_turn

pytestmark = pytest.mark.java

COPY_ON_WRITE = ", ".join(
    f"'write.{verb}.mode' = 'copy-on-write'" for verb in ("delete", "update", "merge")
)


def java_log(
    java: Any, warehouse: Path, start: str, end: str, key: str | None
) -> Counter[tuple[Any, ...]]:
    key_option = f", identifier_columns => array('{key}')" if key else ""
    java.sql(
        warehouse,
        "CALL {c}.system.create_changelog_view(table => 'db.t', changelog_view => 'log',"
        f" options => map('start-snapshot-id', '{start}', 'end-snapshot-id', '{end}'){key_option})",
    )
    rows = java.sql(
        warehouse,
        "SELECT id, name, cast(day AS string) day, tags, lower(_change_type) kind, _change_ordinal,"
        " cast(_commit_snapshot_id AS string) snapshot FROM log",
    )
    return Counter(tuple(map(json.dumps, row.values())) for row in rows)


def lake_log(
    lake: CommandLine, start: str, end: str, key: str | None, folder: Path
) -> Counter[tuple[Any, ...]]:
    output = folder / f"{start}-{end}-{key}.json"
    key_option = ["--key", key] if key else []
    lake.ok(
        *("scan", "db.t", "--changes", "--from-snapshot", start, "--to-snapshot", end),
        *("--output", output, "--replace", *key_option),
    )
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    names = ("id", "name", "day", "tags", "_change_type", "_change_ordinal", "_commit_snapshot_id")
    found = [[row[name] for name in names] for row in rows]
    for row in found:
        row[-1] = str(row[-1])
    return Counter(tuple(map(json.dumps, row)) for row in found)


@pytest.mark.parametrize(
    ("version", "partitions"),
    [
        pytest.param(1, "", marks=pytest.mark.slow),
        pytest.param(2, " PARTITIONED BY (bucket(2, id), day)", marks=pytest.mark.slow),
        (3, ""),
    ],
)
def test_copy_on_write_histories_are_shown_as_java_shows_them(
    java: Any, lake: CommandLine, version: int, partitions: str, tmp_path: Path
) -> None:
    warehouse = lake.warehouse
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, name STRING, day DATE, tags ARRAY<STRING>) USING iceberg"
        f"{partitions} TBLPROPERTIES ('format-version' = '{version}', {COPY_ON_WRITE})",
    )
    source = (
        "SELECT id, concat('n', id) name, date_add(DATE'2026-01-01', cast(id % 3 AS int)) day,"
        " array(cast(id AS string), NULL) tags FROM range({}, {})"
    )
    for statement in (
        "INSERT INTO {c}.db.t " + source.format(0, 20),
        "INSERT INTO {c}.db.t " + source.format(20, 30),
        "UPDATE {c}.db.t SET name = upper(name) WHERE id % 4 = 0",
        "DELETE FROM {c}.db.t WHERE id % 7 = 3",
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
        "MERGE INTO {c}.db.t t USING (" + source.format(25, 40) + ") s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = NULL WHEN NOT MATCHED THEN INSERT *",
        "INSERT OVERWRITE {c}.db.t " + source.format(10, 12),
        "DELETE FROM {c}.db.t WHERE id = 10",
    ):
        java.sql(warehouse, statement)
    snapshots = [
        row["id"]
        for row in java.sql(
            warehouse,
            "SELECT cast(snapshot_id AS string) id FROM {c}.db.t.snapshots ORDER BY committed_at",
        )
    ]
    assert len(snapshots) == 8

    # Another half of them in each format version.
    keys = (None, "id") if version % 2 else ("id", None)
    for start, end, key in in_turn([(0, 7), (1, 3), (3, 4), (3, 6), (6, 7)], keys):
        asked = snapshots[start], snapshots[end], key
        expected = java_log(java, warehouse, *asked)
        assert lake_log(lake, *asked, tmp_path) == expected
        assert expected or (start, end) == (3, 4)


MERGE_ON_READ = COPY_ON_WRITE.replace("copy-on-write", "merge-on-read")


@pytest.mark.parametrize(
    ("version", "granularity"),
    [(2, "partition"), *chosen([], [(2, "file")]), (3, "file")],
)
def test_changes_of_merge_on_read_tables_lead_from_javas_rows_to_javas_rows(
    java: Any, lake: CommandLine, version: int, granularity: str, tmp_path: Path
) -> None:
    warehouse = lake.warehouse
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, name STRING) USING iceberg PARTITIONED BY (bucket(2, id))"
        f" TBLPROPERTIES ('format-version' = '{version}', {MERGE_ON_READ},"
        f" 'write.delete.granularity' = '{granularity}')",
    )
    source = "SELECT id, concat('n', id) name FROM range({}, {})"
    for statement in (
        "INSERT INTO {c}.db.t " + source.format(0, 40),
        "DELETE FROM {c}.db.t WHERE id % 7 = 3",
        "MERGE INTO {c}.db.t t USING (" + source.format(30, 50) + ") s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = upper(t.name) WHEN NOT MATCHED THEN INSERT *",
        "DELETE FROM {c}.db.t WHERE id % 5 = 1",
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
        "DELETE FROM {c}.db.t WHERE id > 45",
    ):
        java.sql(warehouse, statement)
    listed = "SELECT cast(snapshot_id AS string) id FROM {c}.db.t.snapshots ORDER BY committed_at"
    snapshots = [row["id"] for row in java.sql(warehouse, listed)]
    assert len(snapshots) == 6

    def rows_at(snapshot: str) -> Counter[tuple[Any, ...]]:
        found = java.sql(warehouse, f"SELECT id, name FROM {{c}}.db.t VERSION AS OF {snapshot}")
        return Counter((row["id"], row["name"]) for row in found)

    rows = [rows_at(snapshot) for snapshot in snapshots]
    for start, end in [(0, 5), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]:
        output = tmp_path / "log.json"
        lake.ok(
            *("scan", "db.t", "--changes", "--key", "id", "--output", output, "--replace"),
            *("--from-snapshot", snapshots[start], "--to-snapshot", snapshots[end]),
        )
        now = Counter(rows[start])
        for row in map(json.loads, output.read_text().splitlines()):
            came = row["_change_type"] in {"insert", "update_after"}
            now[row["id"], row["name"]] += 1 if came else -1
            assert now[row["id"], row["name"]] >= 0
        assert +now == rows[end]
        if (start, end) == (3, 4):
            assert output.read_text() == ""
