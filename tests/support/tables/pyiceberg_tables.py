"""Tables that PyIceberg writes: in every version, by every transform, evolved and upgraded."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType

from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.metadata.format_upgrades import UpgradeToVersion3
from support.tables.foreign_course import NAME, Course, arrow, made
from support.tables.iceberg_tables import pyiceberg_catalog

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "ts", TimestampType(), required=False),
    NestedField(4, "n", IntegerType(), required=False),
)
SPECS = {
    "unpartitioned": None,
    "identity": (2, IdentityTransform()),
    "bucket": (1, BucketTransform(3)),
    "truncate": (2, TruncateTransform(1)),
    "year": (3, YearTransform()),
    "month": (3, MonthTransform()),
    "day": (3, DayTransform()),
    "hour": (3, HourTransform()),
}


def course(folder: Path, version: str, transform: str) -> Course:
    """Let PyIceberg write a table: appends, an evolved schema and spec, a deletion; upgraded at the end."""
    warehouse = folder / "warehouse"
    chosen = SPECS[transform]
    spec = (
        UNPARTITIONED_PARTITION_SPEC
        if chosen is None
        else PartitionSpec(PartitionField(chosen[0], 1000, chosen[1], "p"))
    )
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    table = catalog.create_table(
        NAME,
        SCHEMA,
        partition_spec=spec,
        properties={"format-version": "2" if version.startswith("2") else "1"},
    )
    first, second, third = made(range(6)), made(range(6, 10)), made(range(10, 14), more="m")
    table.append(arrow(first, second=False))
    table.append(arrow(second, second=False))
    with table.update_schema() as schema:
        schema.add_column("more", StringType())
        schema.rename_column("part", "label")
        schema.update_column("n", LongType())
    _evolve_spec(table, transform)
    table.append(arrow(third))
    table.delete("id = 1 or id = 12")
    model = {k: v for k, v in (first | second | third).items() if k not in {1, 12}}
    _finish(catalog, warehouse, table, version)
    return Course(warehouse, folder, model, first, second | third)


def _evolve_spec(table: Table, transform: str) -> None:
    with table.update_spec() as spec:
        if transform in {"identity", "day"}:
            # In version 1 a void field stays in its place.
            spec.remove_field("p")
        # PyIceberg takes no two fields of one column.
        spec.add_field("ts" if transform == "bucket" else "id", BucketTransform(2), "q")


def _finish(catalog: Any, warehouse: Path, table: Table, version: str) -> None:
    if version in {"1 to 2", "1 to 3"}:
        with table.transaction() as change:
            change.upgrade_table_version(2)
    if version.endswith("3"):
        pyiceberg_patches.apply()
        catalog.commit_table(table, (), (UpgradeToVersion3(format_version=3),))
    if version == "1, as of old":
        edit(warehouse, table, _age)


def _age(metadata: dict[str, Any]) -> None:
    """Take from the metadata what early writers of version 1 did not write."""
    for name in ("table-uuid", "refs", "metadata-log", "last-partition-id", "statistics"):
        metadata.pop(name, None)
    for snapshot in metadata["snapshots"]:
        snapshot.pop("schema-id", None)
        snapshot.pop("sequence-number", None)


def edit(warehouse: Path, table: Table, change: Callable[[dict[str, Any]], None]) -> None:
    table.refresh()
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    change(metadata)
    edited = path.with_name(f"00099-{path.name}")
    edited.write_text(json.dumps(metadata))
    with sqlite3.connect(warehouse / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{edited}",))


VERSIONS = ("1", "1, as of old", "1 to 2", "2", "1 to 3", "2 to 3")
