"""Streams of Spark's data source and of Iceberg's own, which go on from one another's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

INSERT = "INSERT INTO {{c}}.db.t SELECT /*+ REPARTITION(2) */ id FROM range({}, {})"


@pytest.mark.parametrize("of_lake", [True, False], ids=["lake-first", "java-first"])
def test_streams_go_on_from_one_anothers_checkpoint(
    java: Any, warehouse: Path, tmp_path: Path, of_lake: bool
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(warehouse, "CREATE TABLE {c}.db.t (id BIGINT) USING iceberg")
    java.sql(warehouse, INSERT.format(0, 4))
    for turn in range(1, 4):
        first = 4 * turn
        java.sql(warehouse, INSERT.format(first, first + 2))
        java.sql(warehouse, INSERT.format(first + 2, first + 4))
        found = java.stream(warehouse, "db.t", tmp_path, of_lake=of_lake)
        of_lake = not of_lake

        assert sorted(row["id"] for row in found) == [*range(first + 4)]
    offset = (tmp_path / "checkpoint/offsets/2").read_text().splitlines()[-1]
    assert json.loads(offset)["position"] == 2
