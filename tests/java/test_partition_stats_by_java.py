"""The partition statistics of `lake stats --partitions` are those of Iceberg Java's compute_partition_stats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update import RemovePartitionStatisticsUpdate
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

_CALL = "CALL {c}.system.compute_partition_stats('db.t')"
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A column of each type that can be a partition, and an expression of the row's number.
_TYPES = {
    "l bigint": "id * 1000000007 - 900000000",
    "f float": "element_at(array(NULL, CAST('NaN' AS FLOAT), -0.0F, 0.0F, -1.5F, 2.0F), CAST(id % 6 + 1 AS INT))",
    "d double": "(id % 5 - 2) * 1.5D",
    "m decimal(9, 2)": "(id % 7 - 3) * 1.27",
    "w decimal(38, 3)": "CAST(id % 5 - 2 AS DECIMAL(38, 3)) * 98765432109876543210",
    "b boolean": "id % 3 = 0",
    "a date": "date_add(DATE '1969-12-31', CAST(id % 3 AS INT))",
    "t timestamp": "TIMESTAMP '1969-12-31 23:59:59.5' + make_interval(0, 0, 0, 0, 0, 0, id % 3)",
    "n timestamp_ntz": "TIMESTAMP_NTZ '2024-02-29 12:00:00' + make_interval(0, 0, 0, id % 5)",
    "s string": "element_at(array(NULL, '', 'ä', 'z', 'a\\u0000', '\\U0001F600'), CAST(id % 6 + 1 AS INT))",
    "x binary": "element_at(array(X'', X'00', X'80', X'7FFF', NULL), CAST(id % 5 + 1 AS INT))",
}


def stored(lake: CommandLine) -> Path:
    """Return the file of the current snapshot."""
    metadata = lake.table().metadata
    (file,) = [
        item
        for item in metadata.partition_statistics
        if item.snapshot_id == metadata.current_snapshot_id
    ]
    path = Path(re.sub("^file:/+", "/", file.statistics_path))
    assert path.stat().st_size == file.file_size_in_bytes
    return path


def forget(lake: CommandLine) -> None:
    """Remove the entries of all partition statistics files."""
    table = lake.table()
    updates = tuple(
        RemovePartitionStatisticsUpdate(snapshot_id=item.snapshot_id)
        for item in table.metadata.partition_statistics
    )
    table.catalog.commit_table(table, (), updates)


def agrees(lake: CommandLine, java: JavaPeer) -> list[dict[str, Any]]:
    """Compare lake's file with the one that Iceberg Java writes for the same snapshot; return its rows."""
    assert lake.ok("stats", "db.t", "--partitions")["status"] == "done"
    own, path = java.partition_statistics(lake.warehouse, "db.t"), stored(lake)
    assert own
    forget(lake)
    java.sql(lake.warehouse, _CALL)
    assert own == java.partition_statistics(lake.warehouse, "db.t")
    other = stored(lake)
    assert (_UUID.sub("", path.name), path.parent) == (_UUID.sub("", other.name), other.parent)
    if path.suffix == ".parquet":
        assert columns_of(path) == columns_of(other)
    return own


def columns_of(path: Path) -> list[str]:
    """Return the columns of a Parquet file with their ids, types and whether they are required."""
    text = str(pq.ParquetFile(path).schema)
    # Spark's writer calls the root otherwise.
    return text.splitlines()[2:]


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_counts_the_same_in_tables_of_several_specs(
    lake: CommandLine, java: JavaPeer, version: int
) -> None:
    rows, few = lake.warehouse.parent / "rows.csv", lake.warehouse.parent / "few.csv"
    rows.write_text(
        "id,day,name,x\n1,2026-01-30,a b/c,0.5\n2,2026-01-30,,NaN\n3,2026-01-31,ü,\n4,,d,-1\n"
    )
    few.write_text("id,day,name,x\n2,2026-01-30,new,1.5\n")
    chosen = ("--property", f"format-version={version}")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "day", *chosen)
    agrees(lake, java)
    if version > 1:
        lake.ok("ingest", "db.t", few, "--upsert", "--key", "id", "--deletes", "position")
        lake.ok("ingest", "db.t", few, "--upsert", "--key", "id,day", "--deletes", "equality")
        found = agrees(lake, java)
        assert sum(row["equality_delete_file_count"] for row in found) == 1
        assert sum(row["position_delete_record_count"] for row in found) == 1
        assert sum(row["dv_count"] or 0 for row in found) == (1 if version == 3 else 0)
    lake.ok("alter", "db.t", "--partition-by", "truncate(name, 2), bucket(id, 4)")
    lake.ok("ingest", "db.t", rows)
    lake.ok("alter", "db.t", "--partition-by", "day, bucket(id, 4)")
    lake.ok("ingest", "db.t", rows)
    found = agrees(lake, java)
    assert len({row["spec_id"] for row in found}) == 3
    java.sql(lake.warehouse, "DELETE FROM {c}.db.t WHERE day = DATE '2026-01-31'")
    found = agrees(lake, java)
    assert any(row["data_file_count"] == 0 for row in found)
    lake.ok("compact", "db.t", "--rewrite-all")
    agrees(lake, java)
    java.sql(lake.warehouse, "ALTER TABLE {c}.db.t DROP PARTITION FIELD day")
    lake.ok("ingest", "db.t", few)
    agrees(lake, java)
    if version > 1:
        java.sql(lake.warehouse, "ALTER TABLE {c}.db.t DROP COLUMN name")
        few.write_text("id,day,x\n2,2026-01-30,1.5\n")
        lake.ok("ingest", "db.t", few)
        assert all(len(row["partition"]) == 2 for row in agrees(lake, java))


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_java_continues_from_a_file_of_lake(
    lake: CommandLine, java: JavaPeer, version: int
) -> None:
    rows, few = lake.warehouse.parent / "rows.csv", lake.warehouse.parent / "few.csv"
    rows.write_text("id,part\n1,a\n2,b\n3,\n4,a\n")
    few.write_text("id,part\n1,a\n9,d\n")
    chosen = ("--property", f"format-version={version}")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "part", *chosen)
    assert lake.ok("stats", "db.t", "--partitions")["status"] == "done"
    lake.ok("ingest", "db.t", few, "--upsert", "--key", "id,part", "--deletes", "equality")
    lake.ok("ingest", "db.t", few, "--upsert", "--key", "id", "--deletes", "position")
    java.sql(lake.warehouse, "DELETE FROM {c}.db.t WHERE part = 'b'")
    java.sql(lake.warehouse, _CALL)
    continued = java.partition_statistics(lake.warehouse, "db.t")

    forget(lake)
    assert lake.ok("stats", "db.t", "--partitions")["status"] == "done"

    assert continued == java.partition_statistics(lake.warehouse, "db.t")


@pytest.mark.slow
def test_java_reads_the_file_of_a_table_of_orc_files(lake: CommandLine, java: JavaPeer) -> None:
    rows = lake.warehouse.parent / "rows.csv"
    rows.write_text("id,part\n1,a\n2,b\n3,a\n")
    orc = ("--property", "write.format.default=orc")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "part", *orc)
    with pytest.raises(RuntimeError, match="unregistered internal data format: ORC"):
        java.sql(lake.warehouse, _CALL)

    lake.ok("stats", "db.t", "--partitions")

    counts = {
        row["partition"][0]: row["data_record_count"]
        for row in java.partition_statistics(lake.warehouse, "db.t")
    }
    assert counts == {"a": 2, "b": 1}


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_java_reads_partitions_of_every_type_in_the_same_order(
    warehouse: Path, java: JavaPeer, file_format: str
) -> None:
    lake = CommandLine(warehouse)
    pyiceberg_catalog(warehouse).create_namespace("db")
    names = [name.split()[0] for name in _TYPES]
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t ({', '.join(_TYPES)}) USING iceberg "
        f"PARTITIONED BY ({', '.join(names)}) "
        f"TBLPROPERTIES ('write.format.default'='{file_format}')",
    )
    java.sql(
        warehouse, f"INSERT INTO {{c}}.db.t SELECT {', '.join(_TYPES.values())} FROM range(60)"
    )

    assert len(agrees(lake, java)) == 60
    for dropped in (names[:4], names[4:8], names[8:]):
        for name in dropped:
            java.sql(warehouse, f"ALTER TABLE {{c}}.db.t DROP PARTITION FIELD {name}")
        java.sql(
            warehouse, f"INSERT INTO {{c}}.db.t SELECT {', '.join(_TYPES.values())} FROM range(9)"
        )
        if dropped == names[:4]:
            agrees(lake, java)
    agrees(lake, java)
