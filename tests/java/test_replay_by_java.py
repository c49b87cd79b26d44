"""Iceberg Java reads what a replay leaves: rows, history and row ids, and goes on from there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.metadata import TableMetadata
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.flink_fixtures import FlinkFixture, canonical_rows, lent
from support.tables.iceberg_tables import pyiceberg_catalog
from support.tables.replay_plans import plan_of, session_on

from lake.core.load.replay.execute import execute

pytestmark = pytest.mark.java

# Of each kind: row deltas of version 2 and 3, by FlinkSink and IcebergSink, appends, and overwrites.
NAMES = [
    "b-append-pending",
    "b2-append-pending",
    "c-upsert",
    "c2-upsert-part",
    "c3-upsert-v3",
    "d-retract",
    "f2-overwrite-pending",
    "h-refused",
    "l-spec-evolved",
]


class Judge:
    """Java on one fixture."""

    def __init__(self, java: JavaPeer, fixture: FlinkFixture, folder: Path) -> None:
        self.java = java
        self.fixture = fixture
        self.folder = folder
        catalog = "h" if fixture.catalog_type == "hadoop" else "c"
        self.table = f"{{{catalog}}}.{fixture.table}"

    def ask(self, statement: str) -> list[dict[str, Any]]:
        return self.java.sql(self.fixture.warehouse, statement)

    def rows(self, version: int | None = None) -> list[str]:
        place = self.folder / str(version)
        suffix = f" VERSION AS OF {version}" if version else ""
        self.ask(
            f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT * FROM {self.table}{suffix}"
        )
        return canonical_rows(pq.read_table(place))


@pytest.mark.parametrize("name", NAMES)
def test_java_reads_rows_and_history_of_a_replay_and_goes_on(
    name: str, java: JavaPeer, tmp_path: Path
) -> None:
    with lent(name) as fixture:
        session = session_on(fixture)
        planned = plan_of(session, fixture, replace_partitions=name.startswith("f"))
        made = execute(session, planned).snapshot_ids
        judge = Judge(java, fixture, tmp_path)

        assert judge.rows() == fixture.rows("full")
        if planned.base_snapshot_id is not None:
            assert judge.rows(planned.base_snapshot_id) == fixture.rows("committed")
        history = judge.ask(
            "SELECT cast(snapshot_id AS string) id, cast(parent_id AS string) parent "
            f"FROM {judge.table}.snapshots"
        )
        parents = {row["id"]: row["parent"] for row in history}
        expected = [planned.base_snapshot_id, *made]
        for parent, child in zip(expected, made, strict=False):
            assert parents[str(child)] == str(parent)

        metadata = session.table(fixture.table).metadata
        if metadata.format_version == 3:
            check_row_ids(judge, metadata, made)

        columns = ", ".join(fixture.truth["table"]["columns"])
        judge.ask(
            f"INSERT INTO {judge.table} ({columns}) SELECT {columns} FROM {judge.table} LIMIT 1"
        )
        count = judge.ask(f"SELECT count(*) n FROM {judge.table}")[0]["n"]
        assert count == len(fixture.rows("full")) + 1


def check_row_ids(judge: Judge, metadata: TableMetadata, made: Sequence[int]) -> None:
    """Each step's rows have ids of the run that its snapshot reserved, and the runs join."""
    runs = {}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in made:
            assert snapshot.first_row_id is not None
            assert snapshot.added_rows is not None
            runs[snapshot.sequence_number] = (
                snapshot.first_row_id,
                snapshot.first_row_id + snapshot.added_rows,
            )
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(runs.values()))
    rows = judge.ask(f"SELECT _row_id id, _last_updated_sequence_number number FROM {judge.table}")
    assert len({row["id"] for row in rows}) == len(rows)
    replayed = [row for row in rows if row["number"] in runs]
    assert replayed
    for row in replayed:
        first, end = runs[row["number"]]
        assert first <= row["id"] < end


@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_what_all_staged_runs_leave_and_goes_on(
    java: JavaPeer, warehouse: Path, tmp_path: Path, version: int
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, name STRING) USING iceberg"
        f" TBLPROPERTIES ('format-version' = '{version}')",
    )
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (1, 'old'), (2, 'old'), (3, 'old')")
    lake = CommandLine(warehouse, engine="inline")
    change = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id")
    for run, (text, options) in enumerate(
        [
            ("id,name\n4,a\n5,a\n", ()),
            ("op,id,name\n+U,1,new\n-D,2,\n+U,4,b\n", change),
            ("id,name\n2,again\n", ()),
        ]
    ):
        source = tmp_path / f"{run}.csv"
        source.write_text(text)
        lake.ok("ingest", "db.t", source, "--stage", "--run-id", f"r{run}", *options)
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (6, 'java')")

    assert len(lake.ok("replay", "db.t", "--all-staged")["snapshot_ids"]) == 3

    def rows() -> list[tuple[int, str]]:
        found = java.sql(warehouse, "SELECT id, name FROM {c}.db.t")
        return sorted((row["id"], row["name"]) for row in found)

    expected = [(1, "new"), (2, "again"), (3, "old"), (4, "b"), (5, "a"), (6, "java")]
    assert rows() == expected
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 3")
    java.sql(
        warehouse,
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    )
    assert rows() == [row for row in expected if row[0] != 3]
