"""`lake expire` beside Java's expire_snapshots: the same files stay, and run ids outlive both."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import files_below, pyiceberg_catalog, pyiceberg_table

pytestmark = pytest.mark.java

NOW = ("--older-than", "0s", "--unsafe-retention")
EXPIRE = "CALL {c}.system.expire_snapshots('db.%s', TIMESTAMP '2100-01-01 00:00:00', %d)"
KINDS = {
    "statistics": r"\.stats$",
    "partition statistics": r"partition-stats.*\.parquet$",
    "manifest list": r"/snap-[^/]*\.avro$",
    "manifest": r"-m\d+\.avro$",
    "data or deletes": r"/data/.*\.(parquet|puffin)$",
}


def kinds_below(warehouse: Path, table: str) -> Counter[str]:
    """Count the files of a table, but those of table metadata, by kind."""
    folder = f"db/{table}/"
    found: Counter[str] = Counter()
    for path in files_below(warehouse):
        if not path.startswith(folder) or "/." in path or path.endswith(".metadata.json"):
            continue
        kind = next((name for name, text in KINDS.items() if re.search(text, path)), path)
        found[kind] += 1
    return found


@pytest.mark.parametrize(("version", "retain"), [(2, 1), (2, 3), (3, 1)])
def test_what_expiring_leaves_is_what_java_leaves_with_statistics_too(
    warehouse: Path, java: JavaPeer, version: int, retain: int
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    lake = CommandLine(warehouse, engine="inline")
    settings = (
        f"PARTITIONED BY (part) TBLPROPERTIES ('format-version'='{version}', "
        "'write.delete.mode'='merge-on-read')"
    )
    for table in ("java", "lake"):
        for statement in (
            f"CREATE TABLE {{c}}.db.%s (id BIGINT, part STRING) USING iceberg {settings}",
            "INSERT INTO {c}.db.%s VALUES (1, 'a'), (2, 'a'), (3, 'b')",
            "CALL {c}.system.compute_table_stats('db.%s')",
            "CALL {c}.system.compute_partition_stats('db.%s')",
            "DELETE FROM {c}.db.%s WHERE id = 1",
            "CALL {c}.system.compute_table_stats('db.%s')",
            "INSERT INTO {c}.db.%s VALUES (4, 'a')",
            "CALL {c}.system.compute_partition_stats('db.%s')",
            "CALL {c}.system.rewrite_data_files('db.%s', options => map('rewrite-all', 'true'))",
            "CALL {c}.system.compute_table_stats('db.%s')",
        ):
            java.sql(warehouse, statement.replace("%s", table))
    before = kinds_below(warehouse, "lake")
    java.sql(warehouse, EXPIRE % ("java", retain))
    options = ("expire", "db.lake", *NOW, "--retain-last", str(retain))

    promised = lake.ok(*options, "--dry-run")["plan"]
    document = lake.ok(*options)

    assert before["statistics"] == 3
    assert before["partition statistics"] == 2
    assert kinds_below(warehouse, "lake") == kinds_below(warehouse, "java")
    assert document["result"] == {**promised, "failed_deletes": 0}
    rows = "SELECT * FROM {c}.db.%s ORDER BY id"
    assert java.sql(warehouse, rows % "lake") == java.sql(warehouse, rows % "java")


def test_run_ids_outlive_an_expiry_by_java_and_end_with_a_rollback(
    warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    lake = CommandLine(warehouse, engine="inline")
    sources = {}
    for number, name in enumerate(("r1", "r2", "r3", "s1")):
        sources[name] = tmp_path / f"{name}.csv"
        sources[name].write_text(f"id\n{number}\n")

    def load(name: str, *options: str) -> str:
        return str(lake.ok("ingest", "db.t", sources[name], "--run-id", name, *options)["status"])

    def head() -> int:
        return int(pyiceberg_table(warehouse).metadata.current_snapshot_id)

    def rows(ref: str = "main") -> list[int]:
        found = java.sql(warehouse, f"SELECT id FROM {{c}}.db.t VERSION AS OF '{ref}' ORDER BY id")
        return [row["id"] for row in found]

    assert load("r1", "--create") == "done"
    first = head()
    assert [load("r2"), load("r3")] == ["done", "done"]
    java.sql(warehouse, EXPIRE % ("t", 1))
    assert [load(name) for name in ("r1", "r2", "r3")] == ["nothing-to-do"] * 3
    assert rows() == [0, 1, 2]
    assert pyiceberg_table(warehouse).metadata.snapshot_by_id(first) is None
    # A rollback takes the run away, also where its snapshot expires before anything else happens.
    kept = head()
    assert load("s1") == "done"
    java.sql(warehouse, f"CALL {{c}}.system.rollback_to_snapshot('db.t', {kept})")
    java.sql(warehouse, EXPIRE % ("t", 1))
    assert rows() == [0, 1, 2]
    assert load("s1") == "done"
    assert [load("s1"), load("r1")] == ["nothing-to-do"] * 2
    assert rows() == [0, 1, 2, 3]
    # Another branch has the runs that it was made with, and gives its own by a fast-forward.
    java.sql(warehouse, "ALTER TABLE {c}.db.t CREATE BRANCH side")
    sources["b1"] = tmp_path / "b1.csv"
    sources["b1"].write_text("id\n9\n")
    assert load("b1", "--branch", "side") == "done"
    assert load("s1", "--branch", "side") == "nothing-to-do"
    java.sql(warehouse, "CALL {c}.system.fast_forward('db.t', 'main', 'side')")
    java.sql(warehouse, EXPIRE % ("t", 1))
    assert [load("b1"), load("b1", "--branch", "side")] == ["nothing-to-do"] * 2
    assert rows() == rows("side") == [0, 1, 2, 3, 9]
