"""Plan a partition statistics file: the snapshot and the statistics of its partitions. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile

from lake.core.base.errors import BadInputError
from lake.core.base.facts import Facts, NoFacts
from lake.core.data.rows.partition_statistics import check_statistics_columns
from lake.core.maintain.statistics.facts import PartitionStatisticsFacts
from lake.core.maintain.statistics.partition_counts import (
    PartitionCounts,
    count_partitions,
    counted_type,
)
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table

_DELETE_FILES = ("position_delete_file_count", "equality_delete_file_count", "dv_count")


@dataclass(frozen=True, slots=True)
class PartitionStatisticsPlan:
    """The partitions of a snapshot.

    Args:
        table: the table.
        branch: the branch whose head is described.
        snapshot: the snapshot; None if the branch has none.
        earlier: the file that the snapshot has already; None if it has none that can be read.
        counts: the content of the new file; None if nothing is to be written.
    """

    table: Table
    branch: str
    snapshot: Snapshot | None
    earlier: PartitionStatisticsFile | None = None
    counts: PartitionCounts | None = None

    def facts(self) -> Facts:
        """Return the plan's figures for the outcome; nothing is counted if the snapshot has a file."""
        if self.counts is None:
            return NoFacts()
        rows = self.counts.rows
        deletes = [name for name in _DELETE_FILES if name in rows.column_names]
        return PartitionStatisticsFacts(
            partitions=rows.num_rows,
            data_files=_total(rows, "data_file_count"),
            delete_files=sum(_total(rows, name) for name in deletes),
            records=_total(rows, "data_record_count"),
            bytes=_total(rows, "total_data_file_size_in_bytes"),
        )


def plan_partition_statistics(table: Table, branch: str) -> PartitionStatisticsPlan:
    """Count the rows and files of the partitions of a branch's head, from its manifests.

    Raises:
        NotFoundError: the branch does not exist.
        RefusedError: the table is not partitioned.
        CorruptFileError: a manifest does not match its list.
    """
    snapshot = ancestry.branch_head(table.metadata, branch)
    if snapshot is None:
        return PartitionStatisticsPlan(table, branch, None)
    unified = counted_type(table.metadata)
    earlier = partition_statistics_of(table.metadata, snapshot.snapshot_id)
    if earlier is not None and _is_readable(table, earlier):
        return PartitionStatisticsPlan(table, branch, snapshot, earlier)
    counts = count_partitions(table, snapshot, unified)
    return PartitionStatisticsPlan(
        table, branch, snapshot, counts=counts if counts.rows.num_rows else None
    )


def partition_statistics_of(
    metadata: TableMetadata, snapshot_id: int
) -> PartitionStatisticsFile | None:
    """Return the partition statistics file of a snapshot, if it has one."""
    files = metadata.partition_statistics
    return next((item for item in files if item.snapshot_id == snapshot_id), None)


def _is_readable(table: Table, file: PartitionStatisticsFile) -> bool:
    try:
        if table.storage.size(file.statistics_path) != file.file_size_in_bytes:
            return False
        check_statistics_columns(table.storage, file)
    except BadInputError:
        return False
    return True


def _total(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows[name].cast(pa.int64())).as_py() or 0)
