"""Streams and sinks of Spark's data source and of Iceberg's own, which go on from one another's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tables.iceberg_tables import ids_in, pyiceberg_catalog, pyiceberg_table

pytestmark = pytest.mark.java

INSERT = "INSERT INTO {{c}}.db.t SELECT id FROM range({}, {})"


def test_streams_go_on_from_one_anothers_checkpoint(
    java: Any, warehouse: Path, tmp_path: Path
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(warehouse, "CREATE TABLE {c}.db.t (id BIGINT) USING iceberg")
    java.sql(warehouse, INSERT.format(0, 4))
    for turn, of_lake in enumerate((True, False, True), start=1):
        first = 4 * turn
        java.sql(warehouse, INSERT.format(first, first + 2))
        java.sql(warehouse, INSERT.format(first + 2, first + 4))
        found = java.stream(warehouse, "db.t", tmp_path, of_lake=of_lake)

        assert sorted(row["id"] for row in found) == [*range(first + 4)]


def test_sinks_know_one_anothers_epochs(java: Any, warehouse: Path, tmp_path: Path) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(warehouse, "CREATE TABLE {c}.db.t (id BIGINT) USING iceberg")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for turn, of_lake in enumerate((True, False, True)):
        (source / f"{turn}.json").write_text(json.dumps({"id": turn}))
        # The driver of the last turn died before Spark wrote down that its epoch was committed.
        for path in checkpoint.glob(f"commits/*{turn - 1}*"):
            path.unlink()
        java.sink(warehouse, "db.t", source, checkpoint, of_lake=of_lake)

        assert ids_in(warehouse) == [*range(turn + 1)]
    summaries = [item.summary for item in pyiceberg_table(warehouse).snapshots()]
    assert [one["spark.sql.streaming.epochId"] for one in summaries] == ["0", "1", "2"]
