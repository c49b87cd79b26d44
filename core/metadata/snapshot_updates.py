"""Snapshots and properties changed as Iceberg defines it, for catalogs whose commits PyIceberg applies itself.

PyIceberg 0.12 does not count row ids in a table that it created (apache/iceberg-python#3621). It reports a
snapshot that is out of date as a bad request, and accepts it in format version 3. It also clears the parent of a
snapshot whose parent is removed, but the lineage needs it: an expired exclusive start of an incremental scan is
legal while its child exists, and a history that was cut must not look complete. Its test of each id against a
list is quadratic. REST catalogs receive the same requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from lake.core.metadata.commit_times import in_order
from lake.core.metadata.text import keep_source, source_of


class AddSnapshot(AddSnapshotUpdate):
    """``add-snapshot`` that moves the table's next row id, in format version 3.

    A snapshot made before the table's last one, which only a commit to another branch lets through, conflicts.
    """


@_apply_table_update.register(AddSnapshot)
def _add(
    update: AddSnapshot, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    snapshot = update.snapshot
    if _is_stale(snapshot, base_metadata):
        raise CommitFailedException("a snapshot was added to another branch meanwhile")
    after = _apply_table_update.dispatch(AddSnapshotUpdate)(update, base_metadata, context)
    if snapshot.first_row_id is None or snapshot.added_rows is None:
        return after
    return after.model_copy(update={"next_row_id": snapshot.first_row_id + snapshot.added_rows})


def with_snapshot(metadata: TableMetadata, snapshot: Snapshot) -> TableMetadata:
    """Return the metadata that the next snapshot of the same request is built on."""
    return _apply_table_update(
        AddSnapshot(snapshot=snapshot), metadata, _TableMetadataUpdateContext()
    )


def _is_stale(snapshot: Snapshot, metadata: TableMetadata) -> bool:
    """Whether the next sequence number, and with it the next row id, was taken since the snapshot was made."""
    if metadata.format_version == 1:
        return False
    return (snapshot.sequence_number or 0) <= metadata.last_sequence_number


def settled(
    before: TableMetadata | None,
    after: TableMetadata,
    updates: Iterable[TableUpdate],
    made_ms: int,
) -> TableMetadata:
    """Return what PyIceberg made of a change, with times in order and what its models do not know kept.

    Args:
        before: the table before the change; None where the change makes it.
        after: the table after it.
        updates: the change.
        made_ms: the time of the change, unless it adds snapshots, which have their own.
    """
    if before is not None and after.metadata_log == before.metadata_log:
        return after
    added = [item.snapshot.timestamp_ms for item in updates if isinstance(item, AddSnapshotUpdate)]
    ordered = in_order(before, after, max(added, default=made_ms))
    return keep_source(ordered, None if before is None else source_of(before))


class RemoveSnapshots(RemoveSnapshotsUpdate):
    """``remove-snapshots`` that keeps parents."""


@_apply_table_update.register(RemoveSnapshots)
def _remove(
    update: RemoveSnapshots, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    gone = frozenset(update.snapshot_ids)
    context.add_update(update)
    changes: dict[str, Any] = {
        "snapshots": [item for item in base_metadata.snapshots if item.snapshot_id not in gone],
        "snapshot_log": _log_after(base_metadata, gone),
        "refs": {
            name: ref for name, ref in base_metadata.refs.items() if ref.snapshot_id not in gone
        },
        "statistics": [item for item in base_metadata.statistics if item.snapshot_id not in gone],
        "partition_statistics": [
            item for item in base_metadata.partition_statistics if item.snapshot_id not in gone
        ],
    }
    if base_metadata.current_snapshot_id in gone:
        changes["current_snapshot_id"] = None
    return base_metadata.model_copy(update=changes)


class RemoveProperties(RemovePropertiesUpdate):
    """``remove-properties`` that leaves out properties which another commit has removed."""


@_apply_table_update.register(RemoveProperties)
def _drop(
    update: RemoveProperties, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    gone = frozenset(update.removals)
    context.add_update(update)
    kept = {key: value for key, value in base_metadata.properties.items() if key not in gone}
    return base_metadata.model_copy(update={"properties": kept})


def _log_after(metadata: TableMetadata, gone: frozenset[int]) -> list[Any]:
    """Return the log from behind the last removed entry: an older one would claim a time it did not hold.

    Source: org.apache.iceberg.TableMetadata.Builder.updateSnapshotLog.
    """
    kept: list[Any] = []
    for entry in metadata.snapshot_log:
        if entry.snapshot_id in gone:
            kept.clear()
        else:
            kept.append(entry)
    return kept
