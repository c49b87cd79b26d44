"""Tables that `lake create` and `lake alter` define: Iceberg Java reads them and writes to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer

pytestmark = pytest.mark.java


@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_reads_and_writes_a_table_before_and_after_each_change(
    lake: CommandLine, warehouse: Path, java: JavaPeer, version: int
) -> None:
    lake.ok(
        *("create", "db.t", "id int not null", "amount int", "at timestamp", "old string"),
        *("place struct<x: float>", "--partition-by", "day(at), bucket(4, id)"),
        *("--sort-by", "id desc", "--key", "id", "--format-version", version),
    )
    java.sql(
        warehouse,
        "INSERT INTO {c}.db.t VALUES (1, 10, TIMESTAMP_NTZ '2026-01-01 00:00:00', 'a', "
        "named_struct('x', CAST(1 AS FLOAT)))",
    )
    lake.ok(
        *("alter", "db.t", "--widen", "amount=long", "--rename-column", "amount=total"),
        *("--drop-column", "old", "--add-column", "old string", "--add-column", "place.y double"),
        *("--partition-by", "hour(at), bucket(4, id)", "--sort-by", "total", "--set", "owner=a"),
    )
    lake.ok("alter", "db.t", "--partition-by", "day(at), truncate(10, total)")
    java.sql(
        warehouse,
        "INSERT INTO {c}.db.t VALUES (2, 5000000000, TIMESTAMP_NTZ '2026-01-02 00:00:00', "
        "named_struct('x', CAST(2 AS FLOAT), 'y', 2.0D), 'b')",
    )
    lake.ok("alter", "db.t", "--partition-by", "", "--format-version", max(version, 2))

    rows = java.sql(warehouse, "SELECT id, total, place.y AS y, old FROM {c}.db.t ORDER BY id")
    assert rows == [
        {"id": 1, "total": 10, "y": None, "old": None},
        {"id": 2, "total": 5000000000, "y": 2.0, "old": "b"},
    ]
