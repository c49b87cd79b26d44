"""Files that `lake add-files` added: Java reads their rows, prunes by their metrics, and refuses nothing."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog
from support.tables.parquet_footers import with_statistics, written_by

pytestmark = pytest.mark.java


@pytest.mark.slow
def test_java_reads_the_files_that_lake_added(
    warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    lake = CommandLine(warehouse, engine="inline")
    lake.ok(
        *(
            "create",
            "db.t",
            "id long",
            "d double",
            "t timestamp",
            "i timestamptz",
            "country string",
        ),
        *("s struct<a: long, b: string>", "l list<struct<c: long>>", "m map<string, int>"),
        *("--partition-by", "country, day(t)"),
    )
    moment = datetime(1969, 12, 31, 23, 59, 59, 999000)
    for country, number in (("DE", 1), ("F%2FR", 2)):
        folder = tmp_path / "landing" / f"country={country}"
        folder.mkdir(parents=True)
        kinds = {
            "m": pa.map_(pa.string(), pa.int32()),
            "l": pa.list_(pa.struct({"c": pa.int32()})),
            "s": pa.struct({"b": pa.string(), "a": pa.int32()}),
            "i": pa.timestamp("us", "UTC"),
            "t": pa.timestamp("us"),
            "d": pa.float32(),
            "id": pa.int32(),
        }
        row = {
            "m": [("k", number)],
            "l": [{"c": number}, {"c": None}],
            "s": {"b": "x", "a": number},
            "i": moment,
            "t": moment,
            "d": 0.5,
            "id": number,
        }
        empty = {"t": moment, "id": number + 10}
        made = pa.Table.from_pylist([row, empty], pa.schema(kinds))
        pq.write_table(made, folder / "a.parquet")
    nothing = tmp_path / "landing" / "country=__HIVE_DEFAULT_PARTITION__"
    nothing.mkdir()
    made = pa.table({"id": [3], "t": pa.nulls(1, pa.timestamp("us"))})
    pq.write_table(made, nothing / "a.parquet")
    lake_result = lake("add-files", "db.t", tmp_path / "landing")
    assert lake_result.exit_code == 0, lake_result

    # Spark writes timestamps in this way by default.
    old = pa.table({"id": [1], "i": pa.array([moment])})
    pq.write_table(old, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    lake.ok("create", "db.old", "id long", "i timestamptz")
    lake.ok("add-files", "db.old", tmp_path / "old.parquet")
    # Its writer compared decimals as signed bytes: 2.00 is the minimum.
    wrong = tmp_path / "wrong.parquet"
    prices = pa.array([Decimal(cents) / 100 for cents in (100, 200, 2400)], pa.decimal128(25, 2))
    pq.write_table(pa.table({"id": [1, 2, 3], "price": prices}), wrong)
    low, high = (cents.to_bytes(11, "big") for cents in (200, 2400))
    with_statistics(wrong, column=1, bounds=(low, high))
    written_by(wrong, "parquet-mr version 1.8.2 (build c652278)", deprecated=True)
    lake.ok("create", "db.prices", "id long", "price decimal(25,2)")
    lake.ok("add-files", "db.prices", wrong)
    same_time = "i = TIMESTAMP '1969-12-31 23:59:59.999Z'"
    expected = {
        "true": [1, 2, 3, 11, 12],
        "country = 'F/R'": [2, 12],
        "country IS NULL": [3],
        "id = 2 AND d = 0.5 AND s.a = 2 AND l[0].c = 2 AND m['k'] = 2": [2],
        "t = TIMESTAMP_NTZ '1969-12-31 23:59:59.999'": [1, 2, 11, 12],
        same_time: [1, 2],
        "l IS NULL": [3, 11, 12],
    }
    parts = [
        f"SELECT {number} AS q, id FROM {{c}}.db.t WHERE {where}"
        for number, where in enumerate(expected)
    ]
    parts.append(f"SELECT {len(expected)}, id FROM {{c}}.db.old WHERE {same_time}")
    parts.append(f"SELECT {len(expected) + 1}, id FROM {{c}}.db.prices WHERE price = 1")
    found = java.sql(warehouse, " UNION ALL ".join(parts))
    for number, ids in enumerate([*expected.values(), [1], [1]]):
        assert sorted(row["id"] for row in found if row["q"] == number) == ids
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 11")
    lake.ok("compact", "db.t", "--rewrite-all")
    found = java.sql(warehouse, "SELECT id FROM {c}.db.t ORDER BY id")
    assert [row["id"] for row in found] == [1, 2, 3, 12]
