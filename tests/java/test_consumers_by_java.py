"""Consumers beside Java's expire_snapshots: what is not read yet stays, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import open_session, pyiceberg_catalog, pyiceberg_table

from lake.core.read.continuous.consumers import protect
from lake.core.table.refs.consumers import first_unread

pytestmark = pytest.mark.java

EXPIRE = "CALL {c}.system.expire_snapshots('db.t', TIMESTAMP '2100-01-01 00:00:00', 1)"


def history(warehouse: Path) -> list[int]:
    """Return the ids of the retained snapshots, oldest first."""
    metadata = pyiceberg_table(warehouse).metadata
    return [item.snapshot_id for item in metadata.snapshots]


@pytest.mark.parametrize("version", [1, 3])
def test_java_keeps_exactly_what_a_consumer_has_not_read(
    warehouse: Path, java: JavaPeer, version: int
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    lake = CommandLine(warehouse, engine="inline")
    settings = f"USING iceberg TBLPROPERTIES ('format-version'='{version}')"
    java.sql(warehouse, f"CREATE TABLE {{c}}.db.t (id BIGINT) {settings}")
    for number in range(6):
        java.sql(warehouse, f"INSERT INTO {{c}}.db.t VALUES ({number})")
    ids = history(warehouse)
    session = open_session(warehouse)

    def recorded(
        position: int | None, *, needs_position: bool = False, ttl_ms: int = 10**10
    ) -> None:
        table = session.table("db.t")
        unread = first_unread(table.metadata, "main", position)
        needed = position if needs_position else unread
        protect(session, table, "r", "main", needed, ttl_ms, needs_position=needs_position)

    def lag() -> int:
        return int(lake.ok("consumers", "db.t")["result"]["consumers"][0]["lag"]["snapshots"])

    recorded(ids[1])
    java.sql(warehouse, EXPIRE)
    assert history(warehouse) == ids[2:]
    assert lag() == 4
    # A reader of changes needs the snapshot of its position too.
    recorded(ids[3], needs_position=True)
    java.sql(warehouse, EXPIRE)
    assert history(warehouse) == ids[3:]
    assert lag() == 2
    # What is committed after the reader's last run is kept by lake only; the ref's own snapshots by both.
    recorded(ids[4])
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (6)")
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (7)")
    newest = history(warehouse)[-2:]
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    assert history(warehouse) == [ids[5], *newest]
    java.sql(warehouse, EXPIRE)
    assert history(warehouse) == [ids[5], newest[1]]
    assert java.sql(warehouse, "SELECT count(*) n FROM {c}.db.t") == [{"n": 8}]
    at = java.sql(warehouse, f"SELECT id FROM {{c}}.db.t VERSION AS OF {ids[5]} ORDER BY id")
    assert [row["id"] for row in at] == list(range(6))
    [row] = lake.ok("consumers", "db.t")["result"]["consumers"]
    assert (row["branch"], row["expired_snapshots"]) == ("main", 1)
    # Without a consumer, and after its time, the head alone stays.
    recorded(None, ttl_ms=1)
    java.sql(warehouse, EXPIRE)
    assert history(warehouse) == newest[1:]
    assert lake.ok("consumers", "db.t")["result"]["consumers"] == []
    assert session.warnings == []
