"""`lake compact` beside Java's writers, and the tag of a long run under Java's expiry."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import (
    open_session,
    pyiceberg_catalog,
    pyiceberg_table,
)
from support.tables.metadata_edits import edit_metadata

from lake.core.maintain.compaction.concurrency import rhythm
from lake.core.transaction.locks.base_tag import BaseTag

pytestmark = pytest.mark.java

HOUR_MS = 3_600_000
EXPIRE = "CALL {c}.system.expire_snapshots('db.t', TIMESTAMP '2100-01-01 00:00:00', 1)"
UPDATE = "UPDATE {c}.db.t SET v = v + 1 WHERE part = 'hot' AND id < 200"


def make(warehouse: Path, java: JavaPeer, mode: str) -> CommandLine:
    """Make a table with a partition that nothing changes, and one whose rows will be updated."""
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, v BIGINT, part STRING) USING iceberg PARTITIONED BY (part) "
        f"TBLPROPERTIES ('format-version'='2', 'write.update.mode'='{mode}')",
    )
    for number in range(5):
        values = f"({number}, 0, 'cold'), ({100 + number}, 0, 'hot')"
        java.sql(warehouse, f"INSERT INTO {{c}}.db.t VALUES {values}")
    return CommandLine(warehouse, engine="inline")


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_updates_and_appends_of_java_beside_compactions_all_succeed(
    warehouse: Path, java: JavaPeer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    # A rhythm is otherwise one of ten minutes.
    monkeypatch.setattr(rhythm, "_LEAST_SPAN_MS", 0)
    lake = make(warehouse, java, mode)
    # As many as a rhythm takes.
    for _ in range(10):
        java.sql(warehouse, UPDATE)
    failures: list[Exception] = []
    ended = threading.Event()

    def write() -> None:
        try:
            for number in range(6):
                java.sql(warehouse, f"INSERT INTO {{c}}.db.t VALUES ({1000 + number}, 0, 'hot')")
                java.sql(warehouse, UPDATE)
        except Exception as error:
            failures.append(error)
        finally:
            ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    documents: list[dict[str, Any]] = []
    # On a busy machine, more of them would only slow the writer down.
    while not ended.is_set() and len(documents) < 16:
        documents.append(lake("--json", "compact", "db.t", "--min-input-files", "2").json())
    writer.join()

    assert not failures
    # The partition that nothing changes was compacted at once.
    assert {item["status"] for item in documents} <= {"done", "nothing-to-do"}
    assert documents[0]["result"]["rewritten_files"] == 5
    assert documents[0]["plan"]["rhythm"]["writers"][0].startswith("spark")
    rows = java.sql(warehouse, "SELECT id, v FROM {c}.db.t ORDER BY id")
    expected = [(n, 0) for n in range(5)] + [(100 + n, 16) for n in range(5)]
    assert [(row["id"], row["v"]) for row in rows] == [
        *expected,
        *((1000 + n, 0) for n in range(6)),
    ]


def test_java_keeps_the_snapshot_of_a_long_run_and_expires_the_tag_of_a_dead_one(
    warehouse: Path, java: JavaPeer
) -> None:
    make(warehouse, java, "copy-on-write")

    def days_older(plain: dict[str, Any]) -> None:
        for item in (*plain["snapshots"], *plain["snapshot-log"]):
            item["timestamp-ms"] -= 240 * HOUR_MS

    # The tag's age is counted from its snapshot's commit, which may be long ago.
    edit_metadata(warehouse, days_older)
    session = open_session(warehouse)
    table = session.table("db.t")
    base = table.metadata.current_snapshot()
    assert base is not None
    files = [task.file.file_path for task in table.handle.scan().plan_files()]
    BaseTag(session, "dead").keep(table, base)
    java.sql(
        warehouse,
        "CALL {c}.system.rewrite_data_files('db.t', options => map('rewrite-all', 'true'))",
    )
    java.sql(warehouse, EXPIRE)

    assert "lake-run-dead" in pyiceberg_table(warehouse).metadata.refs
    assert all(Path(path.removeprefix("file:").replace("//", "/")).exists() for path in files)
    found = java.sql(warehouse, "SELECT id FROM {c}.db.t VERSION AS OF 'lake-run-dead'")
    assert len(found) == 10

    def hours_older(plain: dict[str, Any]) -> None:
        for item in (*plain["snapshots"], *plain["snapshot-log"]):
            item["timestamp-ms"] -= 2 * HOUR_MS

    edit_metadata(warehouse, hours_older)
    # Java's file system verifies checksums of what it wrote itself.
    for checksum in (warehouse / "db" / "t" / "metadata").glob(".*.crc"):
        checksum.unlink()
    java.sql(warehouse, EXPIRE)
    metadata = pyiceberg_table(warehouse).metadata
    assert list(metadata.refs) == ["main"]
    assert metadata.snapshot_by_id(base.snapshot_id) is None
    assert not any(Path(path.removeprefix("file:").replace("//", "/")).exists() for path in files)
