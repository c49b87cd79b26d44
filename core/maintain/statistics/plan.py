"""Plan a statistics file: the snapshot, its columns and the files to read. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, PrimitiveType, UnknownType

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.maintain.statistics.facts import StatisticsFacts
from lake.core.read.scan.plan import ScanOptions, ScanPlan, plan_scan
from lake.core.spec.types.type_text import type_text
from lake.core.spec.types.unsupported_columns import has_unsupported
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table

THETA_SKETCH = "apache-datasketches-theta-v1"


@dataclass(frozen=True, slots=True)
class StatisticsOptions:
    """The options.

    Args:
        branch: the branch whose head is described.
        select: the columns; None for all columns of primitive types that are not in another column.
    """

    branch: str = ancestry.MAIN
    select: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class StatisticsPlan:
    """The columns of a snapshot to describe.

    Args:
        scan: the files to read.
        snapshot: the snapshot; None if the branch has none.
        is_done: whether the table has statistics of these columns already.
    """

    scan: ScanPlan
    snapshot: Snapshot | None
    is_done: bool

    @property
    def table(self) -> Table:
        """The table."""
        return self.scan.table

    @property
    def fields(self) -> Sequence[NestedField]:
        """The columns."""
        return self.scan.projection.fields

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.snapshot is None or self.is_done or not self.fields

    def facts(self) -> StatisticsFacts:
        """Return the plan's figures for the outcome."""
        least, most = self.scan.row_bounds()
        return StatisticsFacts(
            columns=[field.name for field in self.fields],
            data_files=self.scan.found.count,
            rows=least if least == most else None,
            rows_at_most=most or 0,
            bytes=self.scan.bytes,
        )


def plan_statistics(table: Table, options: StatisticsOptions) -> StatisticsPlan:
    """Choose the columns of the head of a branch.

    Raises:
        NotFoundError: a column or the branch does not exist.
        InvalidRequestError: a column has no number of distinct values.
    """
    select = options.select
    if select is None:
        fields = table.schema.fields
        select = [field.name for field in fields if _is_described(field)]
    scan = plan_scan(table, ScanOptions(branch=options.branch, select=select))
    for field in scan.projection.fields:
        if not _is_described(field):
            raise InvalidRequestError(
                f"distinct values of column {field.name} of type {type_text(field.field_type)} are not counted",
                hint=f"leave it out of {Option.SELECT}",
            )
    snapshot = ancestry.branch_head(table.metadata, options.branch)
    wanted = {field.field_id for field in scan.projection.fields}
    is_done = snapshot is not None and wanted <= described(table.metadata, snapshot.snapshot_id)
    return StatisticsPlan(scan, snapshot, is_done)


def described(metadata: TableMetadata, snapshot_id: int) -> set[int]:
    """Return the ids of the columns of which a snapshot has sketches."""
    return {
        blob.fields[0]
        for file in metadata.statistics
        if file.snapshot_id == snapshot_id
        for blob in file.blob_metadata
        if blob.type == THETA_SKETCH and len(blob.fields) == 1
    }


def _is_described(field: NestedField) -> bool:
    kind = field.field_type
    if not isinstance(kind, PrimitiveType) or isinstance(kind, UnknownType):
        return False
    return not has_unsupported(kind)
