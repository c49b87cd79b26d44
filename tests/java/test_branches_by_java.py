"""Branches that lake wrote, with deletes of every kind, as Java reads, compacts and expires them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java


@pytest.mark.slow
def test_java_sees_on_a_branch_what_lake_did_there_and_nothing_on_main(
    warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    lake = CommandLine(warehouse, engine="inline")
    numbers = iter(range(100))
    model = {1: "a", 2: "b", 3: "a", 4: "b"}
    main = dict(model)

    def sql(statement: str) -> list[tuple[int, str]]:
        found = java.sql(warehouse, statement)
        return sorted((row["id"], row["part"]) for row in found) if "SELECT" in statement else []

    def source(rows: dict[int, str]) -> Path:
        path = tmp_path / f"{next(numbers)}.parquet"
        pq.write_table(pa.table({"id": list(rows), "part": list(rows.values())}), path)
        return path

    def check() -> None:
        of_branch = "SELECT id, part FROM {c}.db.t VERSION AS OF 'work'"
        assert sql(of_branch) == sorted(model.items())
        assert sql("SELECT id, part FROM {c}.db.t") == sorted(main.items())
        assert sql("SELECT id, part FROM {c}.db.t VERSION AS OF 'v1'") == [(1, "a"), (2, "b")]

    sql("CREATE TABLE {c}.db.t (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part)")
    sql("INSERT INTO {c}.db.t VALUES (1, 'a'), (2, 'b')")
    sql("ALTER TABLE {c}.db.t CREATE TAG v1")
    sql("INSERT INTO {c}.db.t VALUES (3, 'a'), (4, 'b')")
    sql("ALTER TABLE {c}.db.t CREATE BRANCH work")
    sql("DELETE FROM {c}.db.t WHERE id = 1")
    del main[1]
    for number, mode in enumerate(("position", "equality", "copy-on-write")):
        rows = {1 + number: "ab"[number % 2], 10 + number: "a"}
        keys = ("--upsert", "--key", "id,part", "--deletes", mode, "--branch", "work")
        lake.ok("ingest", "db.t", source(rows), *keys)
        model |= rows
    sql("INSERT INTO {c}.db.t.branch_work VALUES (20, 'b')")
    model[20] = "b"
    check()
    rows = {30: "a"}
    where = ("--overwrite-where", "part = 'a' and id > 2", "--branch", "work")
    lake.ok("ingest", "db.t", source(rows), *where)
    model = {key: part for key, part in model.items() if part != "a" or key <= 2} | rows
    lake.ok("compact", "db.t", "--rewrite-all", "--remove-dangling-deletes", "--branch", "work")
    check()
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    check()
    sql("ALTER TABLE {c}.db.t DROP BRANCH work")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert sql("SELECT id, part FROM {c}.db.t") == sorted(main.items())
    assert sql("SELECT id, part FROM {c}.db.t VERSION AS OF 'v1'") == [(1, "a"), (2, "b")]
