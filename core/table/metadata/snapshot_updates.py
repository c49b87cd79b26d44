"""Updates of snapshots and properties as Iceberg defines them, for catalogs whose commits PyIceberg applies.

PyIceberg 0.12 does not count row ids in a table that it created (apache/iceberg-python#3621). It reports a
snapshot that is out of date as a bad request, and accepts it in format version 3. It also clears the parent of a
snapshot whose parent is removed, but the ancestry needs it: an expired exclusive start of an incremental scan is
legal while its child exists, and a history that was cut must not look complete. Its test of each id against a
list is quadratic. It does not drop a ref whose snapshot does not exist. REST catalogs receive the same requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from lake.core.table.metadata.commit_times import in_order
from lake.core.table.metadata.text import keep_source, source_of


class AddSnapshot(AddSnapshotUpdate):
    """``add-snapshot`` that advances the table's next row id, in format version 3.

    A snapshot that is older than the table's last one, possible only after a commit to another branch, conflicts.
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
    """Return the metadata on which the next snapshot of the same request is built."""
    return _apply_table_update(
        AddSnapshot(snapshot=snapshot), metadata, _TableMetadataUpdateContext()
    )


def _is_stale(snapshot: Snapshot, metadata: TableMetadata) -> bool:
    """Whether the next sequence number, and with it the next row id, was used after the snapshot was made."""
    if metadata.format_version == 1:
        return False
    return (snapshot.sequence_number or 0) <= metadata.last_sequence_number


def with_corrections(
    before: TableMetadata | None,
    after: TableMetadata,
    updates: Iterable[TableUpdate],
    made_ms: int,
) -> TableMetadata:
    """Return PyIceberg's result of a change, with times in order and with the members that its models do not know.

    Args:
        before: the table before the change; None if the change creates it.
        after: the table after it.
        updates: the change.
        made_ms: the time of the change; added snapshots have their own times.
    """
    if before is not None and after.metadata_log == before.metadata_log:
        return after
    added = [item.snapshot.timestamp_ms for item in updates if isinstance(item, AddSnapshotUpdate)]
    ordered = in_order(before, after, max(added, default=made_ms))
    return keep_source(ordered, None if before is None else source_of(before))


class RemoveSnapshots(RemoveSnapshotsUpdate):
    """``remove-snapshots`` that keeps parent ids."""


@_apply_table_update.register(RemoveSnapshots)
def _remove(
    update: RemoveSnapshots, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    removed_ids = frozenset(update.snapshot_ids)
    context.add_update(update)
    changes: dict[str, Any] = {
        "snapshots": [
            item for item in base_metadata.snapshots if item.snapshot_id not in removed_ids
        ],
        "snapshot_log": _log_after(base_metadata, removed_ids),
        "refs": {
            name: ref
            for name, ref in base_metadata.refs.items()
            if ref.snapshot_id not in removed_ids
        },
        "statistics": [
            item for item in base_metadata.statistics if item.snapshot_id not in removed_ids
        ],
        "partition_statistics": [
            item
            for item in base_metadata.partition_statistics
            if item.snapshot_id not in removed_ids
        ],
    }
    if base_metadata.current_snapshot_id in removed_ids:
        changes["current_snapshot_id"] = None
    return base_metadata.model_copy(update=changes)


class RemoveSnapshotRef(RemoveSnapshotRefUpdate):
    """``remove-snapshot-ref`` that also drops a branch other than main, or a tag, whose snapshot does not exist."""


@_apply_table_update.register(RemoveSnapshotRef)
def _remove_ref(
    update: RemoveSnapshotRef, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    ref = base_metadata.refs.get(update.ref_name)
    if (
        ref is None
        or update.ref_name == MAIN_BRANCH
        or base_metadata.snapshot_by_id(ref.snapshot_id) is not None
    ):
        return _apply_table_update.dispatch(RemoveSnapshotRefUpdate)(update, base_metadata, context)
    context.add_update(update)
    kept = {name: item for name, item in base_metadata.refs.items() if name != update.ref_name}
    return base_metadata.model_copy(update={"refs": kept})


class RemoveStatistics(RemoveStatisticsUpdate):
    """``remove-statistics`` that conflicts if the snapshot's files are not the expected ones.

    The request to a server does not contain the expectation: no requirement of REST catalogs expresses it.
    """

    expected: frozenset[str] = Field(exclude=True)


@_apply_table_update.register(RemoveStatistics)
def _remove_statistics(
    update: RemoveStatistics, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    _require_expected(base_metadata.statistics, update.snapshot_id, update.expected)
    return _apply_table_update.dispatch(RemoveStatisticsUpdate)(update, base_metadata, context)


class RemovePartitionStatistics(RemovePartitionStatisticsUpdate):
    """``remove-partition-statistics`` that conflicts likewise."""

    expected: frozenset[str] = Field(exclude=True)


@_apply_table_update.register(RemovePartitionStatistics)
def _remove_partition_statistics(
    update: RemovePartitionStatistics,
    base_metadata: TableMetadata,
    context: _TableMetadataUpdateContext,
) -> TableMetadata:
    _require_expected(base_metadata.partition_statistics, update.snapshot_id, update.expected)
    apply = _apply_table_update.dispatch(RemovePartitionStatisticsUpdate)
    return apply(update, base_metadata, context)


def _require_expected(files: Iterable[Any], snapshot_id: int, expected: frozenset[str]) -> None:
    found = {item.statistics_path for item in files if item.snapshot_id == snapshot_id}
    if found != expected:  # check: statistics-unchanged
        raise CommitFailedException(f"the statistics of snapshot {snapshot_id} changed meanwhile")


class RemoveProperties(RemovePropertiesUpdate):
    """``remove-properties`` that ignores properties that another commit has removed."""


@_apply_table_update.register(RemoveProperties)
def _drop(
    update: RemoveProperties, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    removed_names = frozenset(update.removals)
    context.add_update(update)
    kept = {
        key: value for key, value in base_metadata.properties.items() if key not in removed_names
    }
    return base_metadata.model_copy(update={"properties": kept})


def _log_after(metadata: TableMetadata, removed_ids: frozenset[int]) -> list[Any]:
    """Return the log after the last removed entry: an older entry would then cover a wrong period of time.

    Source: org.apache.iceberg.TableMetadata.Builder.updateSnapshotLog.
    """
    kept: list[Any] = []
    for entry in metadata.snapshot_log:
        if entry.snapshot_id in removed_ids:
            kept.clear()
        else:
            kept.append(entry)
    return kept
