"""Change logs of tables without delete files, compared with Iceberg Java's `create_changelog_view`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from table_support import pyiceberg_catalog

pytestmark = pytest.mark.java

COPY_ON_WRITE = ", ".join(
    f"'write.{verb}.mode' = 'copy-on-write'" for verb in ("delete", "update", "merge")
)


def java_log(
    java: Any, warehouse: Path, start: str, end: str, key: str | None
) -> Counter[tuple[Any, ...]]:
    told = f", identifier_columns => array('{key}')" if key else ""
    java.sql(
        warehouse,
        "CALL {c}.system.create_changelog_view(table => 'db.t', changelog_view => 'log',"
        f" options => map('start-snapshot-id', '{start}', 'end-snapshot-id', '{end}'){told})",
    )
    rows = java.sql(
        warehouse,
        "SELECT id, name, cast(day AS string) day, tags, lower(_change_type) kind, _change_ordinal,"
        " cast(_commit_snapshot_id AS string) snapshot FROM log",
    )
    java.sql(warehouse, "DROP VIEW log")
    return Counter(tuple(map(json.dumps, row.values())) for row in rows)


def lake_log(
    lake: CommandLine, start: str, end: str, key: str | None, folder: Path
) -> Counter[tuple[Any, ...]]:
    output = folder / f"{start}-{end}-{key}.json"
    told = ["--key", key] if key else []
    lake.ok(
        *("scan", "db.t", "--changes", "--from-snapshot", start, "--to-snapshot", end),
        *("--output", output, "--replace", *told),
    )
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    names = ("id", "name", "day", "tags", "_change_type", "_change_ordinal", "_commit_snapshot_id")
    found = [[row[name] for name in names] for row in rows]
    for row in found:
        row[-1] = str(row[-1])
    return Counter(tuple(map(json.dumps, row)) for row in found)


@pytest.mark.parametrize(
    ("version", "partitions"), [(1, ""), (2, " PARTITIONED BY (bucket(2, id), day)"), (3, "")]
)
def test_copy_on_write_histories_are_told_as_java_tells_them(
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

    for start, end in [(0, 7), (1, 3), (3, 4), (3, 6), (6, 7)]:
        for key in (None, "id"):
            asked = snapshots[start], snapshots[end], key
            expected = java_log(java, warehouse, *asked)
            assert lake_log(lake, *asked, tmp_path) == expected
            assert expected or (start, end) == (3, 4)
