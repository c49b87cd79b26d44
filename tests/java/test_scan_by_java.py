"""`lake scan` beside Iceberg Java's own scans: the same rows, the same increments, the same splits."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import make_table, open_session, write_file

from lake.core.data.formats.parquet.writer import row_group_start
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

pytestmark = pytest.mark.java


def read(lake: CommandLine, *options: object) -> list[dict[str, Any]]:
    """Return the rows that a scan writes to standard output."""
    result = lake("scan", "db.t", "--output", "-", "--output-format", "json", *options)
    assert result.exit_code == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def of_many_sizes(warehouse: Path, seed: int) -> None:
    """Commit files of random sizes and row groups, some without split offsets, in one manifest."""
    make_table(warehouse)
    session = open_session(warehouse)
    table = session.table("db.t")
    chance = random.Random(seed)
    files, start = [], 0
    for _ in range(30):
        rows = chance.choice([1, 20, 700, 3000])
        file = write_file(table, range(start, start + rows))
        start += rows
        local = Path(file.path.removeprefix("file://"))
        pq.write_table(pq.read_table(local), local, row_group_size=chance.choice([100, 500, 5000]))
        footer = pq.read_metadata(local)
        offsets = [row_group_start(footer.row_group(n)) for n in range(footer.num_row_groups)]
        known = tuple(offsets) if chance.random() < 0.7 else ()
        files.append(replace(file, size_bytes=local.stat().st_size, split_offsets=known))
    commit_snapshot(
        session, table, AppendFiles(added=files), CommitRequest(operation_id=str(uuid.uuid4()))
    )


@pytest.mark.parametrize(
    ("size", "lookback", "cost"),
    [(9000, 10, 2000), (30_000, 2, 10), (5000, 1, 5000), (2**27, 10, 2**22), (4000, 3, 0)],
)
def test_splits_are_those_that_java_plans(
    java: JavaPeer, tmp_path: Path, size: int, lookback: int, cost: int
) -> None:
    warehouse = tmp_path / "w"
    of_many_sizes(warehouse, size)
    plan = plan_scan(
        open_session(warehouse).table("db.t"),
        ScanOptions(split_size=size, split_lookback=lookback, split_open_cost=cost),
    )
    paths = [
        path for entries in plan.found.by_spec.values() for path in entries["file_path"].to_pylist()
    ]

    found = [
        [[paths[piece.file], piece.start, piece.length] for piece in plan.pieces.at(split)]
        for split in plan.splits
    ]

    names = ("read.split.target-size", "read.split.planning-lookback", "read.split.open-file-cost")
    options = dict(zip(names, map(str, (size, lookback, cost)), strict=True))
    assert found == java.splits(warehouse, "db.t", options)


def test_increments_hold_what_javas_hold(java: JavaPeer, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    make_table(warehouse, commit__manifest__min_count_to_merge="2")
    for step in range(8):
        java.sql(
            warehouse,
            f"INSERT INTO {{c}}.db.t SELECT id, 'x' FROM range({step * 3}, {step * 3 + 3})",
        )
        if step == 2:
            java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 1")
        if step == 3:
            java.sql(warehouse, "INSERT OVERWRITE {c}.db.t SELECT id, 'y' FROM range(100, 105)")
        if step == 5:
            java.sql(
                warehouse,
                "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
            )
    snapshots = java.sql(
        warehouse, "SELECT snapshot_id FROM {c}.db.t.snapshots ORDER BY committed_at"
    )
    ids = [row["snapshot_id"] for row in snapshots]
    pairs = [(a, b) for position, a in enumerate(ids) for b in ids[position + 1 :]]

    for start, end in random.Random(4).sample(pairs, 12):
        expected = java.read(warehouse, "db.t", start_snapshot_id=start, end_snapshot_id=end)
        found = read(lake, "--from-snapshot", start, "--to-snapshot", end)
        assert sorted(row["id"] for row in found) == sorted(row["id"] for row in expected)


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_table_that_java_evolved_has_javas_rows_at_each_snapshot(
    java: JavaPeer, tmp_path: Path, version: str
) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    make_table(warehouse, name="db.other")
    steps = [
        (
            "CREATE TABLE {c}.db.t (id INT, name STRING, at STRUCT<x: FLOAT, y: STRING>, "
            "tags ARRAY<STRUCT<k: STRING, v: INT>>, more MAP<STRING, STRUCT<n: INT>>) USING iceberg "
            f"TBLPROPERTIES ('format-version'='{version}')"
        ),
        (
            "INSERT INTO {c}.db.t VALUES (1, 'a', struct(1.5f, 'p'), array(struct('k', 1)), "
            "map('m', struct(1))), (2, NULL, NULL, NULL, NULL)"
        ),
        "ALTER TABLE {c}.db.t ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {c}.db.t RENAME COLUMN at.x TO east",
        "ALTER TABLE {c}.db.t ALTER COLUMN at.east TYPE DOUBLE",
        "ALTER TABLE {c}.db.t ADD COLUMN tags.element.w STRING FIRST",
        "ALTER TABLE {c}.db.t ADD COLUMN more.value.z DECIMAL(9, 2)",
        "ALTER TABLE {c}.db.t ADD PARTITION FIELD bucket(4, id)",
        (
            "INSERT INTO {c}.db.t VALUES (3000000000, 'b', named_struct('east', 2.5D, 'y', 'q'), "
            "array(named_struct('w', 'w', 'k', 'k', 'v', 2)), map('m', named_struct('n', 2, 'z', 1.25BD)))"
        ),
        "ALTER TABLE {c}.db.t DROP COLUMN name",
        "ALTER TABLE {c}.db.t ADD COLUMN name STRING AFTER id",
        "ALTER TABLE {c}.db.t ALTER COLUMN tags FIRST",
        "INSERT INTO {c}.db.t VALUES (array(), 4, 'new', NULL, map())",
    ]
    for step in steps:
        java.sql(warehouse, step)
    snapshots = java.sql(
        warehouse, "SELECT snapshot_id FROM {c}.db.t.snapshots ORDER BY committed_at"
    )

    for suffix, options in [
        ("", []),
        *[
            (f"VERSION AS OF {row['snapshot_id']}", ["--snapshot", row["snapshot_id"]])
            for row in snapshots
        ],
    ]:
        expected = java.sql(warehouse, f"SELECT to_json(struct(*)) j FROM {{c}}.db.t {suffix}")
        found = read(lake, *options)
        assert by_id(found) == by_id([json.loads(row["j"]) for row in expected])
    assert [row["id"] for row in read(lake, "--where", "at.east > 2", "--select", "id")] == [
        3_000_000_000
    ]
    assert [row["id"] for row in read(lake, "--where", "name is not null", "--select", "id")] == [4]


def by_id(rows: list[dict[str, Any]]) -> list[Any]:
    """Return rows in one order; Spark leaves NULLs out and writes decimals as numbers."""
    return sorted((_tidy(row) for row in rows), key=lambda row: row["id"])


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return float(value) if isinstance(value, str) and value.replace(".", "").isdigit() else value


def test_a_table_of_javas_with_deletes_is_planned_and_read(java: JavaPeer, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    make_table(warehouse, write__delete__mode="merge-on-read")
    java.sql(warehouse, "INSERT INTO {c}.db.t SELECT /*+ COALESCE(1) */ id, 'x' FROM range(9)")
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 4")

    assert lake.ok("scan", "db.t", "--plan")["plan"]["delete_files"] == 1
    found = lake.ok("scan", "db.t")["result"]["preview"]
    assert sorted(row["id"] for row in found) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_what_lake_wrote_out_is_what_java_reads(java: JavaPeer, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    of_many_sizes(warehouse, 5)
    lake = CommandLine(warehouse, engine="inline")
    output = tmp_path / "rows.parquet"

    lake.ok("scan", "db.t", "--where", "id >= 100 and id < 2000", "--output", output)

    found = pq.read_table(output).cast(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    expected = java.sql(
        warehouse, "SELECT * FROM {c}.db.t WHERE id >= 100 AND id < 2000 ORDER BY id"
    )
    assert found.sort_by("id").to_pylist() == expected
