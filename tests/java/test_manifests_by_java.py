"""Iceberg Java reads the manifests and manifest lists that lake writes, value by value."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from support.peers.java_peer import JavaPeer

from lake.core.spec.types.single_values import partition_struct, partition_type
from lake.core.table.manifests.api import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    MANIFEST_SCHEMA,
    ManifestContext,
    ManifestListHeader,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
)

pytestmark = pytest.mark.java

SNAPSHOT = 77
# Column, partition transform, values as Arrow takes them and as Spark's JSON shows them. Java 1.12
# itself misreads fixed and cannot show UUID; Spark has no time.
FIELDS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("b boolean", "b", [True, False], [True, False]),
    ("i int", "i", [-(2**31), 5], [-(2**31), 5]),
    ("l bigint", "l", [-(2**63), 2**40], [-(2**63), 2**40]),
    ("f float", "f", [-0.5, 1e10], [-0.5, 1e10]),
    ("d double", "d", [1e-300, -2.5], [1e-300, -2.5]),
    ("p decimal(9, 2)", "p", [Decimal("-12.34"), Decimal("0.01")], ["-12.34", "0.01"]),
    ("w decimal(38, 0)", "w", [Decimal(-(10**37)), Decimal(7)], [str(-(10**37)), "7"]),
    ("a date", "a", [dt.date(1903, 5, 6), dt.date(2024, 2, 29)], ["1903-05-06", "2024-02-29"]),
    ("s string", "s", ["", "ü/€ 😀"], ["", "ü/€ 😀"]),
    ("x binary", "x", [b"\x00\xff", b""], [str(b"\x00\xff"), str(b"")]),
    (
        "n timestamp_ntz",
        "n",
        [-1, 1_700_000_000_000_001],
        ["1969-12-31 23:59:59.999999", "2023-11-14 22:13:20.000001"],
    ),
    ("k bigint", "bucket(16, k)", [15, 0], [15, 0]),
    ("t string", "truncate(2, t)", ["ab", "é"], ["ab", "é"]),
    ("y timestamp_ntz", "years(y)", [-7, 54], [-7, 54]),
    ("m timestamp_ntz", "months(m)", [-800, 649], [-800, 649]),
    ("g timestamp_ntz", "days(g)", [-9, 19_782], ["1969-12-23", "2024-02-29"]),
    ("h timestamp_ntz", "hours(h)", [-5, 474_768], [-5, 474_768]),
]


def table(java: JavaPeer, warehouse: Path, version: int) -> tuple[Path, TableMetadata]:
    """Let Java create a table; return its metadata file and what is in it."""
    warehouse.mkdir()
    java.sql(warehouse, "CREATE NAMESPACE {c}.db")
    columns = ", ".join(field[0] for field in FIELDS)
    parts = ", ".join(field[1] for field in FIELDS)
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t ({columns}) USING iceberg PARTITIONED BY ({parts}) "
        f"TBLPROPERTIES ('format-version' = '{version}')",
    )
    (found,) = (warehouse / "db" / "t" / "metadata").glob("*.metadata.json")
    return found, TableMetadataUtil.parse_raw(found.read_text())


def entries(metadata: TableMetadata, version: int) -> pa.Table:
    """Return one added, one existing and one deleted entry."""
    kind = partition_struct(partition_type(metadata.spec(), [metadata.schema()]))
    rows = []
    for number, status in enumerate((ADDED, EXISTING, DELETED)):
        values = [None if number == 2 else field[2][number] for field in FIELDS]
        rows.append(
            {
                "status": status,
                "snapshot_id": SNAPSHOT,
                "sequence_number": None if status == ADDED or version == 1 else 1,
                "content": 0,
                "file_path": f"file:/t/{number} ü.parquet",
                "file_format": "PARQUET",
                "partition": dict(zip(kind.names, values, strict=True)),
                "record_count": 100 + number,
                "file_size_in_bytes": 2**33 + number,
                "column_sizes": [{"key": 2, "value": 2**40}, {"key": 1, "value": 0}],
                "nan_value_counts": [],
                "lower_bounds": [{"key": 2, "value": b"\x01\x00\x00\x00"}],
                "split_offsets": [4, 2**32],
                "sort_order_id": 0,
            }
        )
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], kind if name == "partition" else column)
            for name, column in ENTRY_COLUMNS.items()
        }
    )


def install(path: Path, metadata: TableMetadata, version: int) -> None:
    """Make a snapshot with one manifest, written by lake, the table's current one."""
    folder, spec, schema = path.parent, metadata.spec(), metadata.schema()
    written = entries(metadata, version)
    sequence = 0 if version == 1 else 5
    context = ManifestContext(format_version=version, spec=spec, schema=schema, content=0)
    data = encode_manifest(written, context)
    (folder / "m0.avro").write_bytes(data)
    row = describe_manifest(
        written,
        context,
        location=f"file:{folder}/m0.avro",
        length=len(data),
        sequence_number=sequence,
        added_snapshot_id=SNAPSHOT,
    )
    lineage = {"first-row-id": 1000, "added-rows": 201} if version == 3 else {}
    listing = encode_manifest_list(
        pa.Table.from_pylist(
            [{**row, "first_row_id": lineage.get("first-row-id")}], MANIFEST_SCHEMA
        ),
        ManifestListHeader(
            format_version=version,
            snapshot_id=SNAPSHOT,
            parent_snapshot_id=None,
            sequence_number=sequence,
            first_row_id=lineage.get("first-row-id"),
        ),
    )
    (folder / "snap.avro").write_bytes(listing)
    document = json.loads(path.read_text())
    snapshot = {
        "snapshot-id": SNAPSHOT,
        "timestamp-ms": document["last-updated-ms"],
        "manifest-list": f"file:{folder}/snap.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **({"sequence-number": sequence} if version > 1 else {}),
        **lineage,
    }
    changes = {
        "snapshots": [snapshot],
        "current-snapshot-id": SNAPSHOT,
        "refs": {"main": {"snapshot-id": SNAPSHOT, "type": "branch"}},
        **({"last-sequence-number": sequence} if version > 1 else {}),
        **({"next-row-id": 1201} if version == 3 else {}),
    }
    path.write_text(json.dumps({**document, **changes}))
    # Hadoop's checksum of the file as it was.
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_reads_every_value_of_a_manifest(java: JavaPeer, tmp_path: Path, version: int) -> None:
    warehouse = tmp_path / "warehouse"
    path, metadata = table(java, warehouse, version)
    install(path, metadata, version)
    found = java.sql(warehouse, "SELECT * FROM {c}.db.t.all_entries")
    found.sort(key=lambda entry: str(entry["data_file"]["file_path"]))
    sequence = 0 if version == 1 else 5
    assert [entry["status"] for entry in found] == [ADDED, EXISTING, DELETED]
    assert [entry["snapshot_id"] for entry in found] == [SNAPSHOT] * 3
    old = 0 if version == 1 else 1
    assert [entry["sequence_number"] for entry in found] == [sequence, old, old]
    for number, entry in enumerate(found):
        file = entry["data_file"]
        wanted = [None if number == 2 else field[3][number] for field in FIELDS]
        assert list(file["partition"].values()) == wanted
        assert file["file_path"] == f"file:/t/{number} ü.parquet"
        assert (file["content"], file["file_format"], file["sort_order_id"]) == (0, "PARQUET", 0)
        assert (file["record_count"], file["file_size_in_bytes"]) == (100 + number, 2**33 + number)
        assert file["column_sizes"] == {"1": 0, "2": 2**40}
        assert not file["nan_value_counts"]
        assert file["split_offsets"] == [4, 2**32]
        assert file["value_counts"] is None
        if version == 3:
            assert file["first_row_id"] == [1000, 1100, None][number]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_reads_every_value_of_a_manifest_list(
    java: JavaPeer, tmp_path: Path, version: int
) -> None:
    warehouse = tmp_path / "warehouse"
    path, metadata = table(java, warehouse, version)
    install(path, metadata, version)
    (row,) = java.sql(warehouse, "SELECT * FROM {c}.db.t.manifests")
    assert row["length"] == (path.parent / "m0.avro").stat().st_size
    assert row["added_snapshot_id"] == SNAPSHOT
    counts = [row[f"{word}_data_files_count"] for word in ("added", "existing", "deleted")]
    assert counts == [1, 1, 1]
    bounds = {
        field[1]: (summary["lower_bound"], summary["upper_bound"])
        for field, summary in zip(FIELDS, row["partition_summaries"], strict=True)
    }
    assert all(summary["contains_null"] for summary in row["partition_summaries"])
    assert bounds["i"] == (str(-(2**31)), "5")
    assert bounds["l"] == (str(-(2**63)), str(2**40))
    assert bounds["p"] == ("-12.34", "0.01")
    assert bounds["a"] == ("1903-05-06", "2024-02-29")
    assert bounds["s"] == ("", "ü/€ 😀")
    assert bounds["d"] == ("-2.5", "1.0E-300")
