"""Iceberg Java's own REST client, on the same server, reads what lake wrote and is read by lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.service_line import Service, csv
from support.servers.rest_server import RestServer


@pytest.mark.java
def test_java_and_lake_take_turns_on_a_table_of_version_3(
    on_rest: Service, rest: tuple[RestServer, str], java: Any, tmp_path: Path
) -> None:
    catalog, table = on_rest.catalog(), on_rest.table()
    catalog.create_namespace(on_rest.namespace)
    catalog.create_table(
        table,
        pa.schema([("id", pa.int64()), ("name", pa.string())]),
        # Java's client here has no S3.
        location=f"file://{tmp_path}/tables/t",
        properties={"format-version": "3", "write.delete.mode": "merge-on-read"},
    )
    lake, server = on_rest.line(), rest[0].uri
    lake.ok("ingest", table, csv(tmp_path, "a.csv", id=[1, 2, 3], name=["a", "b", "c"]))
    change = csv(tmp_path, "b.csv", id=[2, 4], name=["B", "d"])
    lake.ok("ingest", table, change, "--upsert", "--key", "id")
    rows = f"SELECT id, name FROM {{c}}.{table} ORDER BY id"
    assert [tuple(row.values()) for row in java.sql(server, rows)] == [
        (1, "a"),
        (2, "B"),
        (3, "c"),
        (4, "d"),
    ]

    java.sql(server, f"INSERT INTO {{c}}.{table} VALUES (5, 'e'), (6, 'f')")
    java.sql(server, f"DELETE FROM {{c}}.{table} WHERE id = 5")
    lake.ok("compact", table, "--rewrite-all", "--verify")
    lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")
    expected = [(1, "a"), (2, "B"), (3, "c"), (4, "d"), (6, "f")]
    assert [tuple(row.values()) for row in java.sql(server, rows)] == expected
    shown = lake.ok("scan", table)["result"]["preview"]
    assert sorted((row["id"], row["name"]) for row in shown) == expected
