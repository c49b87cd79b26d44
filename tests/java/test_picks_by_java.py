"""Snapshots that lake and Java apply to branches and publish: one summary, the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

_OWN = {"app-id", "app-name", "engine-name", "engine-version", "iceberg-version", "spark.app.id"}


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_what_lake_applied_and_both_write_the_same_summary(
    warehouse: Path, tmp_path: Path, java: JavaPeer, version: int
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    lake = CommandLine(warehouse, engine="inline")

    def sql(statement: str) -> list[dict[str, object]]:
        return java.sql(warehouse, statement)

    def head(table: str) -> dict[str, str]:
        (row,) = sql(
            f"SELECT map_entries(summary) AS s FROM {{c}}.db.{table}.snapshots "
            "ORDER BY committed_at DESC LIMIT 1"
        )
        entries = row["s"]
        assert isinstance(entries, list)
        summary = {entry["key"]: entry["value"] for entry in entries}
        kept = {key for key in summary if key not in _OWN and not key.startswith("lake.")}
        return {key: summary[key] for key in kept}

    def rows(table: str) -> list[tuple[object, object]]:
        found = sql(f"SELECT id, part FROM {{c}}.db.{table}")
        return sorted((row["id"], row["part"]) for row in found)  # type: ignore[type-var]

    summaries = []
    for table in ("by_java", "by_lake"):
        name = f"db.{table}"
        properties = f"TBLPROPERTIES ('format-version'='{version}', 'write.wap.enabled'='true')"
        sql(
            f"CREATE TABLE {{c}}.{name} (id BIGINT, part STRING) USING iceberg "
            f"PARTITIONED BY (part) {properties}"
        )
        sql(f"INSERT INTO {{c}}.{name} VALUES (1, 'a'), (2, 'b')")
        sql("SET spark.wap.id=first")
        sql(f"INSERT INTO {{c}}.{name} VALUES (3, 'a')")
        sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
        sql("SET spark.wap.id=second")
        sql(f"INSERT OVERWRITE {{c}}.{name} VALUES (9, 'b')")
        sql("RESET spark.wap.id")
        path = tmp_path / "more.parquet"
        pq.write_table(pa.table({"id": [4], "part": ["a"]}), path)
        lake.ok("ingest", name, path)
        seen = []
        for wap_id in ("first", "second"):
            if table == "by_java":
                sql(f"CALL {{c}}.system.publish_changes('{name}', '{wap_id}')")
            else:
                lake.ok("publish", name, "--wap-id", wap_id)
            found = head(table)
            assert found["published-wap-id"] == wap_id
            seen.append({key: found[key] for key in found if key != "source-snapshot-id"})
        assert rows(table) == [(1, "a"), (3, "a"), (4, "a"), (9, "b")]
        summaries.append(seen)
    by_java, by_lake = summaries
    for java_made, lake_made in zip(by_java, by_lake, strict=True):
        # Iceberg's own pick does not mark a replacement again.
        lake_made.pop("replace-partitions", None)
        assert lake_made.keys() == java_made.keys()
        sizes = {"added-files-size", "removed-files-size", "total-files-size"}
        assert {k: v for k, v in lake_made.items() if k not in sizes} == {
            k: v for k, v in java_made.items() if k not in sizes
        }
    # Java recognizes what lake published.
    with pytest.raises(Exception, match="(?i)duplicate|already"):
        sql("CALL {c}.system.publish_changes('db.by_lake', 'first')")
