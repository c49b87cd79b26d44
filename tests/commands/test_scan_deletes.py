"""`lake scan` of tables with deletes: Flink's tables, and every output."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.flink_fixtures import FlinkFixture, canonical_rows
from support.tables.iceberg_tables import (
    make_table,
    open_session,
    pyiceberg_table,
)

Flink = Callable[[str], FlinkFixture]


@pytest.mark.parametrize("name", flink_fixtures.names(deletes=True))
def test_flinks_upserts_and_retractions_are_read_as_flink_means_them(
    flink: Flink, name: str, tmp_path: Path
) -> None:
    fixture, output = flink(name), tmp_path / "rows.parquet"
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)

    lake.ok("scan", fixture.table, "--output", output)

    assert canonical_rows(pq.read_table(output)) == fixture.rows()


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_tasks_of_both_engines_apply_deletes(flink: Flink, engine: str, tmp_path: Path) -> None:
    fixture = flink("c2-upsert-part")
    lake = CommandLine(fixture.warehouse, engine=engine)

    lake.ok("scan", fixture.table, "--split-size", "1KB", "--output", tmp_path / "rows")
    lake.ok("scan", fixture.table, "--split-size", "1KB", "--output", tmp_path / "rows.parquet")

    parts = sorted((tmp_path / "rows").glob("*.parquet"))
    assert len(parts) > 3
    tables = [pq.read_table(part, partitioning=None) for part in parts]
    assert canonical_rows(pa.concat_tables(tables)) == fixture.rows()
    assert canonical_rows(pq.read_table(tmp_path / "rows.parquet")) == fixture.rows()


@pytest.mark.parametrize("name", ["c3-upsert-v3", "d-retract"])
def test_a_filter_and_a_projection_without_the_keys_do_not_change_what_is_deleted(
    flink: Flink, name: str
) -> None:
    fixture = flink(name)
    lake = CommandLine(fixture.warehouse)
    names = fixture.truth["table"]["columns"]
    at = names.index("qty")
    expected = [json.loads(row)[at] for row in fixture.rows()]
    limit = sorted(value for value in expected if value is not None)[len(expected) // 2]

    where = f"qty >= {limit}"
    result = lake(
        "scan",
        fixture.table,
        *("--select", "qty", "--where", where, "--output", "-", "--output-format", "json"),
    )

    found = [json.loads(line)["qty"] for line in result.stdout.splitlines()]
    assert sorted(found) == sorted(v for v in expected if v is not None and v >= limit)


@pytest.fixture
def ten(lake: CommandLine, warehouse: Path) -> list[str]:
    """A table of ten files of ten rows, ids 0 to 99; returns the files in the order of their ids."""
    table = make_table(warehouse)
    for start in range(0, 100, 10):
        ids = range(start, start + 10)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{n}" for n in ids]}))
    files = pyiceberg_table(warehouse).inspect.data_files()
    rows = zip(files["file_path"].to_pylist(), files["readable_metrics"].to_pylist(), strict=True)
    return [path for path, _ in sorted(rows, key=lambda row: row[1]["id"]["lower_bound"])]


def test_limits_and_previews_count_rows_that_are_left(
    lake: CommandLine, warehouse: Path, ten: list[str], tmp_path: Path
) -> None:
    table = open_session(warehouse).table("db.t")
    commit_deletes(
        table,
        equality_file(table, [{"id": n} for n in range(80, 100)], ["id"]),
        position_file(table, [(ten[n], p) for n in range(8) for p in range(9)]),
    )

    result = lake("scan", "db.t", "--limit", "5", "--output", "-", "--output-format", "json")
    ids = [json.loads(line)["id"] for line in result.stdout.splitlines()]
    assert len(ids) == 5
    assert {number % 10 for number in ids} == {9}
    assert lake.ok("scan", "db.t")["result"]["rows"] == 8
    plan = lake.ok("scan", "db.t", "--plan")["plan"]
    assert (plan["delete_files"], plan["records"], plan["files"]) == (2, 100, 10)
    result = lake.ok("scan", "db.t", "--output", tmp_path / "rows.csv")
    assert result["result"]["rows"] == 8


def test_past_snapshots_are_read_with_the_deletes_that_they_had(
    lake: CommandLine, warehouse: Path, ten: list[str]
) -> None:
    table = open_session(warehouse).table("db.t")
    before = str(table.metadata.current_snapshot_id)
    table = commit_deletes(table, position_file(table, [(ten[0], 3)]))
    middle = str(table.metadata.current_snapshot_id)
    commit_deletes(table, equality_file(table, [{"id": 4}], ["id"]))

    def ids(*options: str) -> set[int]:
        result = lake("scan", "db.t", *options, "--output", "-", "--output-format", "json")
        assert result.exit_code == 0, result
        return {json.loads(line)["id"] for line in result.stdout.splitlines()}

    assert ids() == set(range(100)) - {3, 4}
    assert ids("--snapshot", middle) == set(range(100)) - {3}
    assert ids("--snapshot", before) == set(range(100))
    # What was appended was appended, whatever became of it.
    assert ids("--to-snapshot", "main") == set(range(100))


def test_deletes_of_files_that_a_filter_excludes_are_not_read(
    lake: CommandLine, warehouse: Path, ten: list[str], tmp_path: Path
) -> None:
    table = open_session(warehouse).table("db.t")
    gone = position_file(table, [(ten[0], 3)])
    commit_deletes(table, gone)
    Path(gone.path.removeprefix("file://")).unlink()
    output = ["--output", tmp_path / "rows.csv", "--replace"]

    found = lake.ok("scan", "db.t", "--where", "id >= 50", *output)
    assert found["result"]["rows"] == 50
    result = lake("--json", "scan", "db.t", "--where", "id < 50", *output)
    assert result.exit_code == 7
    assert gone.path in result.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["avro", "orc"])
def test_delete_files_of_another_format_than_their_entries_say_are_refused(
    lake: CommandLine, warehouse: Path, ten: list[str], kind: str, tmp_path: Path
) -> None:
    table = open_session(warehouse).table("db.t")
    commit_deletes(table, replace(position_file(table, [(ten[0], 3)]), format=kind.upper()))

    result = lake("scan", "db.t", "--output", tmp_path / "rows.csv")
    assert result.exit_code == 7
    assert "-deletes" in result.stderr or "cannot be read" in result.stderr
    assert not (tmp_path / "rows.csv").exists()
