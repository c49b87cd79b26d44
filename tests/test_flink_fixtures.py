"""Flink's tables as tests get them: whole, and rows compared by a text that every reader can make."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture, canonical_rows, checksum

Flink = Callable[[str], FlinkFixture]


def read_by_pyiceberg(fixture: FlinkFixture) -> pa.Table:
    metadata = fixture.truth["table"]["metadata"]
    return StaticTable.from_metadata(metadata).scan().to_arrow()


def test_there_are_twenty() -> None:
    assert len(flink_fixtures.names()) == 20
    assert len(flink_fixtures.names(catalog="hadoop")) == 10
    assert len(flink_fixtures.names(deletes=True)) == 5


@pytest.mark.parametrize("name", flink_fixtures.names(deletes=False))
def test_pyiceberg_reads_the_rows_that_flink_wrote(flink: Flink, name: str) -> None:
    fixture = flink(name)

    assert canonical_rows(read_by_pyiceberg(fixture)) == fixture.rows()


@pytest.mark.parametrize("name", flink_fixtures.names(catalog="jdbc"))
def test_lake_reads_tables_of_flinks_jdbc_catalog(flink: Flink, name: str, tmp_path: Path) -> None:
    fixture, output = flink(name), tmp_path / "rows.parquet"

    CommandLine(fixture.warehouse).ok("scan", fixture.table, "--output", output)

    assert canonical_rows(pq.read_table(output)) == fixture.rows()
    assert flink_fixtures.is_whole(name)


def test_a_lent_fixture_is_afterwards_as_it_was() -> None:
    with flink_fixtures.lent("a-append") as fixture:
        shutil.rmtree(fixture.warehouse)
        (fixture.root / "more").write_text("x")

    with flink_fixtures.shared("a-append") as fixture:
        assert not (fixture.root / "more").exists()
        assert checksum(canonical_rows(read_by_pyiceberg(fixture)))[0] == 320


def test_a_fixture_that_a_killed_test_left_is_repaired() -> None:
    with flink_fixtures.lent("a-append") as fixture:
        code = (
            "import os; from support.tables import flink_fixtures;"
            "fixture = flink_fixtures.FlinkFixture('a-append');"
            "(fixture.root / 'truth.json').unlink(); os._exit(9)"
        )
        folder = Path(__file__).parent
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=False)
        assert not flink_fixtures.is_whole("a-append")

    with flink_fixtures.shared("a-append") as fixture:
        assert fixture.table == "db.orders"
