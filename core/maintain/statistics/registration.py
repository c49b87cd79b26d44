"""Register a statistics file in the table's metadata: one commit that adds no snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPartitionStatisticsUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)

from lake.core.base import locations
from lake.core.base.errors import CommitConflictError
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

AnyFile = StatisticsFile | PartitionStatisticsFile


def register(session: Session, table: Table, branch: str, file: AnyFile) -> None:
    """Register a statistics file in place of the snapshot's earlier one; delete it if the commit certainly failed.

    The commit requires the branch's head, because the described snapshot can expire only after it was the head.

    Raises:
        CommitConflictError: the snapshot expired meanwhile; nothing was changed.
        CommitUnknownError: the commit may have succeeded; the file is kept.
    """

    def prepare(now: Table) -> ChangeSet | None:
        if file.snapshot_id not in ancestry.snapshots_by_id(now.metadata):
            raise CommitConflictError(
                f"snapshot {file.snapshot_id} of {now.identifier} expired meanwhile; nothing was changed"
            )
        same = AssertTableUUID(uuid=table.metadata.table_uuid)
        head = AssertRefSnapshotId(ref=branch, snapshot_id=ancestry.head_id(now.metadata, branch))
        return ChangeSet((same, head), (_update(file),), [file.statistics_path])

    def find(metadata: TableMetadata) -> AnyFile | None:
        path = file.statistics_path
        found = _files_like(file, metadata)
        return next((item for item in found if item.statistics_path == path), None)

    try:
        commit_changes(session, table, prepare, find)
    except BaseException:
        # If it was interrupted while the request was sent, the commit may have succeeded.
        if locations.canonical(file.statistics_path) not in session.protected_files:
            table.storage.delete([file.statistics_path])
        raise


def _update(file: AnyFile) -> TableUpdate:
    if isinstance(file, StatisticsFile):
        return SetStatisticsUpdate(statistics=file)
    return SetPartitionStatisticsUpdate(partition_statistics=file)


def _files_like(file: AnyFile, metadata: TableMetadata) -> Sequence[AnyFile]:
    if isinstance(file, StatisticsFile):
        return metadata.statistics
    return metadata.partition_statistics
