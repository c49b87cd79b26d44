"""Write the partition statistics file of a snapshot, and register it in the table's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.statistics import PartitionStatisticsFile

from lake.core.base import locations
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.data.rows.file_formats import format_for
from lake.core.maintain.statistics.facts import PartitionStatisticsResult
from lake.core.maintain.statistics.partition_counts import PartitionCounts
from lake.core.maintain.statistics.partition_plan import (
    PartitionStatisticsPlan,
    plan_partition_statistics,
)
from lake.core.maintain.statistics.registration import register
from lake.core.spec.properties.table_properties import DATA_FORMAT
from lake.core.transaction.commit.preconditions import require_writable

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# Iceberg Java reads statistics files in these formats; it fails on ORC files.
_FORMATS = ("parquet", "avro")


def preview(plan: PartitionStatisticsPlan) -> Outcome:
    """Return a dry run's outcome."""
    if plan.counts is None:
        return _nothing(plan)
    return _outcome(plan, Status.DRY_RUN)


def execute(session: Session, table: Table, branch: str) -> Outcome:
    """Describe the partitions of the head of a branch; a file that the snapshot has stays.

    Raises:
        RefusedError: the table is not partitioned.
        CorruptFileError: a manifest does not match its list; nothing was changed.
        CommitConflictError: the snapshot expired meanwhile; nothing was changed.
        CommitUnknownError: the commit may have succeeded; the file is kept.
    """
    require_writable(table, branch)
    plan = plan_partition_statistics(table, branch)
    if plan.snapshot is None or plan.counts is None:
        return _nothing(plan)
    operation_id = session.ids.uuid()
    file = _written(table, plan.snapshot.snapshot_id, plan.counts, operation_id)
    register(session, table, branch, file)
    result = PartitionStatisticsResult(
        partition_statistics_file=file.statistics_path, bytes_written=file.file_size_in_bytes
    )
    return _outcome(plan, Status.DONE, result, operation_id)


def _written(
    table: Table, snapshot_id: int, counts: PartitionCounts, operation_id: str
) -> PartitionStatisticsFile:
    """Write the file, named as Iceberg Java does."""
    name = DATA_FORMAT.of(table.properties)
    # The properties of data files, such as Bloom filters, belong to the table's own columns.
    file_format = format_for(name if name in _FORMATS else _FORMATS[0], counts.schema, {})
    name = f"partition-stats-{snapshot_id}-{operation_id}{file_format.ending}"
    path = locations.join(table.metadata_folder, name)
    new = None
    try:
        new = file_format.create(table.storage, path)
        new.write(counts.rows)
        size = new.close(spec_id=0, partition=()).size_bytes
    except BaseException:
        if new is not None:
            new.abandon()
        table.storage.delete([path])
        raise
    return PartitionStatisticsFile(
        snapshot_id=snapshot_id, statistics_path=path, file_size_in_bytes=size
    )


def _nothing(plan: PartitionStatisticsPlan) -> Outcome:
    found = plan.earlier
    if found is None:
        return _outcome(plan, Status.NOTHING_TO_DO)
    result = PartitionStatisticsResult(partition_statistics_file=found.statistics_path)
    return _outcome(plan, Status.NOTHING_TO_DO, result)


def _outcome(
    plan: PartitionStatisticsPlan,
    status: Status,
    result: Facts = NoFacts(),
    operation_id: str | None = None,
) -> Outcome:
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
    )
