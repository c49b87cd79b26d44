"""The metadata of tables whose history is made by hand; their files do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.types import LongType, NestedField

APPEND, OVERWRITE, DELETE, REPLACE = Operation


def snapshot(number: int, parent: int | None, operation: Operation | None = APPEND) -> Snapshot:
    """Return a snapshot; its id is its sequence number and, in seconds, its time."""
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=1000 * number,
        manifest_list=f"/{number}.avro",
        summary=None if operation is None else Summary(operation),
        schema_id=0,
    )


def metadata_of(snapshots: Sequence[Snapshot], head: int | None, **refs: Any) -> TableMetadata:
    """Return the metadata of a table with these snapshots; refs are given as ``name=(snapshot, type)``."""
    return TableMetadataV2(
        location="/t",
        last_column_id=1,
        schemas=[Schema(NestedField(1, "id", LongType(), required=False), schema_id=0)],
        current_schema_id=0,
        partition_specs=[{"spec-id": 0, "fields": []}],
        default_spec_id=0,
        last_partition_id=999,
        sort_orders=[{"order-id": 0, "fields": []}],
        default_sort_order_id=0,
        last_sequence_number=1000,
        current_snapshot_id=head,
        snapshots=list(snapshots),
        snapshot_log=[
            SnapshotLogEntry(snapshot_id=item.snapshot_id, timestamp_ms=item.timestamp_ms)
            for item in snapshots
        ],
        refs={
            name: SnapshotRef(snapshot_id=number, snapshot_ref_type=kind)
            for name, (number, kind) in refs.items()
        },
    )


def line(count: int, first_kept: int = 1) -> TableMetadata:
    """Snapshots 1 … count, each the next one's parent, those before ``first_kept`` expired."""
    kept = [
        snapshot(number, number - 1 if number > 1 else None)
        for number in range(first_kept, count + 1)
    ]
    return metadata_of(kept, count)
