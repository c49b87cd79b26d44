"""The sketches of `lake stats` are those of Iceberg Java."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasketches
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog, pyiceberg_table
from support.tables.puffin_files import blobs_in

pytestmark = pytest.mark.java

# A column of each type, and an expression of the row's number that repeats.
_COLUMNS = {
    "i int": "id % 37",
    "l bigint": "id * 1000000007",
    "f float": "id % 11 / 4",
    "d double": "id % 13 * -1.5",
    "m decimal(9, 2)": "(id % 301 - 150) * 1.27",
    "w decimal(38, 3)": "CAST(id % 17 - 8 AS DECIMAL(38, 3)) * 98765432109876543210",
    "b boolean": "id % 3 = 0",
    "a date": "date_add(DATE '1969-12-01', CAST(id % 61 AS INT))",
    "t timestamp": "TIMESTAMP '1969-12-31 23:59:59.5' + make_interval(0, 0, 0, 0, id % 7)",
    "n timestamp_ntz": "TIMESTAMP_NTZ '2024-02-29 12:00:00' + make_interval(0, 0, 0, id % 5)",
    "s string": "nullif(repeat('ä', CAST(id % 23 AS INT)), '')",
    "x binary": "CAST(concat('x', id % 31) AS BINARY)",
}


def sketches(warehouse: Path) -> dict[int, tuple[str, list[int]]]:
    """Return the number of distinct values and the hashes of each column of the newest statistics."""
    metadata = pyiceberg_table(warehouse).metadata
    (file,) = metadata.statistics
    found: dict[int, Any] = {}
    for blob, data in blobs_in(Path(re.sub("^file:/+", "/", file.statistics_path))):
        sketch = datasketches.compact_theta_sketch.deserialize(data)
        found[blob["fields"][0]] = (blob["properties"]["ndv"], sorted(sketch))
    return found


@pytest.mark.slow
def test_java_has_the_same_sketches(warehouse: Path, java: JavaPeer) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(warehouse, f"CREATE TABLE {{c}}.db.t ({', '.join(_COLUMNS)}) USING iceberg")
    java.sql(
        warehouse, f"INSERT INTO {{c}}.db.t SELECT {', '.join(_COLUMNS.values())} FROM range(900)"
    )
    lake = CommandLine(warehouse, engine="inline")

    lake.ok("stats", "db.t")

    own = sketches(warehouse)
    java.sql(warehouse, "CALL {c}.system.compute_table_stats(table => 'db.t')")
    assert own == sketches(warehouse)
