"""What a follower reads, in units that can be kept in a file: splits of data files, and parts of change logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.errors import CorruptFileError
from lake.core.base.plain import PlainData
from lake.core.data.deletes.apply import Deletes, EqualityGroups, read_rows
from lake.core.data.keys.row_keys import RowKeys
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.engine.tasks import Task, TaskFunction
from lake.core.read.changelog.execute import ChangelogTask, with_keys
from lake.core.read.changelog.execute import write_part as write_changes
from lake.core.read.changelog.plan import ChangelogPlan
from lake.core.read.changelog.read import changes_of
from lake.core.read.changelog.task_unit import ChangeUnit
from lake.core.read.changelog.task_units import units_of
from lake.core.read.continuous.order import Bounds, WatermarkColumn, file_bounds
from lake.core.read.exports.export import Noted, Part, PartReport
from lake.core.read.scan.execute import DROPPED, ScanTask, note_keys
from lake.core.read.scan.execute import write_part as write_rows
from lake.core.read.scan.plan import ScanOptions, ScanPlan, Split
from lake.core.read.scan.scan_keys import row_keys
from lake.core.spec.types.arrow_schema import PlainSchema
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import EQUALITY_DELETES, DeleteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkHeader(PlainData):
    """What all items of a discovery share.

    Args:
        kind: ``table``, ``append`` or ``changes``.
        projection: the columns of the rows that are handed over.
        settings: how to read files, with all delete files; items name them by index. Units of change logs have
            settings of their own.
    """

    kind: str
    projection: PlainSchema
    settings: ReadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem(PlainData):
    """One split, or one unit of a change log.

    Args:
        files: the slices of a split.
        deletes: its delete files, as indices into those of the header.
        unit: the unit of a change log; None for a split.
        bytes: the size of the slices.
        records: about how many rows they have, deleted or not.
        least: the least value of the watermark column in the files, in milliseconds since 1970, rounded down.
        greatest: the greatest one.
    """

    files: Sequence[FileSlice] = ()
    deletes: tuple[int, ...] = ()
    unit: ChangeUnit | None = None
    bytes: int
    records: int
    least: int | None = None
    greatest: int | None = None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot of a unit of a change log; several units may have one."""
        return None if self.unit is None else self.unit.snapshot_id


def header_of(kind: str, plan: ScanPlan | ChangelogPlan) -> WorkHeader:
    """Return what all items of a plan share."""
    if isinstance(plan, ScanPlan):
        deletes = _delete_files(plan)
        return WorkHeader(kind=kind, projection=plan.projection, settings=plan.reading(deletes))
    settings = plan.steps[0].touched.reading(())
    return WorkHeader(kind=kind, projection=plan.projection, settings=settings)


def _delete_files(plan: ScanPlan) -> list[DeleteFile]:
    if not plan.found.delete_manifests.num_rows:
        return []
    index = plan.found.delete_index
    return index.describe(np.arange(len(index.content)))


def items_of(
    plan: ScanPlan | ChangelogPlan, *, ordinal: int = 0, watermark: WatermarkColumn | None = None
) -> Iterator[WorkItem]:
    """Yield the items of a plan.

    Args:
        plan: the plan.
        ordinal: the ordinal of the first commit of a change log.
        watermark: the column of the watermark; None for none.
    """
    if isinstance(plan, ChangelogPlan):
        for unit in units_of(plan):
            numbered = replace(unit, ordinal=unit.ordinal + ordinal)
            files = [file for part in unit.parts for file in part.files]
            yield WorkItem(unit=numbered, bytes=unit.bytes, records=_records(files))
        return
    indices = {_identity(file): number for number, file in enumerate(_delete_files(plan))}
    bounds = None if watermark is None else file_bounds(plan, watermark)
    for split in plan.reads():
        least, greatest = _bounds_of(split, bounds, watermark)
        yield WorkItem(
            files=split.slices,
            deletes=tuple(indices[_identity(file)] for file in split.deletes),
            bytes=sum(_length(item) for item in split.slices),
            records=_records(split.slices),
            least=least,
            greatest=greatest,
        )


def _bounds_of(
    split: Split, bounds: Bounds | None, watermark: WatermarkColumn | None
) -> tuple[int | None, int | None]:
    if bounds is None or watermark is None:
        return None, None
    ends = [bounds.least[split.numbers].min(), bounds.greatest[split.numbers].max()]
    least, greatest = watermark.milliseconds(np.array(ends, np.int64)).tolist()
    return least, greatest


def _identity(file: DeleteFile) -> tuple[str, int | None]:
    return file.path, file.content_offset


def _length(item: FileSlice) -> int:
    return item.length or item.size_bytes - item.start


def _records(files: Sequence[FileSlice]) -> int:
    shares = (item.record_count * _length(item) / max(item.size_bytes, 1) for item in files)
    return round(sum(shares))


# Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """Some items of work as a plan for reading; see `lake.core.read.exports.export.ReadPlan`."""

    table: Table
    header: WorkHeader
    items: Sequence[WorkItem]
    options: ScanOptions

    @property
    def projection(self) -> Schema:
        """The columns of the rows."""
        return self.header.projection

    @property
    def bytes(self) -> int:
        """The size of the slices."""
        return sum(item.bytes for item in self.items)

    @property
    def records(self) -> int:
        """About how many rows they have, deleted or not."""
        return sum(item.records for item in self.items)


@dataclass(frozen=True, slots=True)
class WorkRows:
    """The rows of some items of work, in their order; see `lake.core.read.exports.export.RowSource`.

    The number of deleted rows is noted as `lake.core.read.scan.execute.DROPPED`.

    Args:
        plan: the items.
        shared: the keys that rows must have, as tasks receive them; empty for all rows.
    """

    plan: WorkPlan
    shared: bytes = b""

    def stream(self, noted: Noted, wanted: int | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield all rows, of which all are taken."""
        for _, batches in self.streams(noted):
            yield from batches

    def streams(self, noted: Noted) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Yield the number of each item and its rows, which must be read before the next item."""
        keys = row_keys(self.shared)
        yield from self._streams(keys, noted)
        note_keys(keys, noted)

    def _streams(
        self, keys: RowKeys | None, noted: Noted
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        if self.plan.header.kind == "changes":
            for number, item in enumerate(self.plan.items):
                yield number, self._changes(item, keys, noted)
            return
        storage, settings = self.plan.table.storage, self.plan.header.settings
        equality = [file for file in settings.deletes if file.content == EQUALITY_DELETES]
        # Most splits have the same equality deletes.
        with closing(EqualityGroups(storage, equality, settings)) as groups:
            for number, item in enumerate(self.plan.items):
                yield number, self._rows(item, keys, groups, noted)

    def _changes(
        self, item: WorkItem, keys: RowKeys | None, noted: Noted
    ) -> Iterator[pa.RecordBatch]:
        storage, projection = self.plan.table.storage, self.plan.projection
        yield from changes_of(storage, with_keys(_unit(item), keys), projection, noted)

    def _rows(
        self, item: WorkItem, keys: RowKeys | None, groups: EqualityGroups, noted: Noted
    ) -> Iterator[pa.RecordBatch]:
        storage, reading = self.plan.table.storage, replace(self._reading(item), keys=keys)
        deletes = Deletes(storage, reading, item.files, groups)
        yield from read_rows(storage, item.files, reading, deletes)
        noted[DROPPED] += deletes.dropped

    def _reading(self, item: WorkItem) -> ReadSettings:
        settings = self.plan.header.settings
        try:
            chosen = tuple(settings.deletes[index] for index in item.deletes)
        except IndexError:
            raise CorruptFileError("a split names a delete file that is not known") from None
        return replace(settings, deletes=chosen)

    def tasks(self, part: Callable[[int], Part]) -> Iterator[Task[Any]]:
        """Yield a task for each item."""
        for number, item in enumerate(self.plan.items):
            if self.plan.header.kind == "changes":
                yield Task(ChangelogTask(part=part(number), unit=_unit(item)), item.bytes)
            else:
                payload = ScanTask(part=part(number), reading=self._reading(item), files=item.files)
                yield Task(payload, item.bytes)

    @property
    def task(self) -> TaskFunction[Any, PartReport]:
        """The function that writes a part."""
        changes: TaskFunction[Any, PartReport] = write_changes
        rows: TaskFunction[Any, PartReport] = write_rows
        return changes if self.plan.header.kind == "changes" else rows

    def check(self, rows: int, noted: Noted) -> None:
        """Do nothing: rows are counted over a whole discovery."""


def rows_of(
    table: Table, header: WorkHeader, items: Sequence[WorkItem], keys: bytes = b""
) -> WorkRows:
    """Return the rows of some items of work; see `WorkRows`."""
    plan = WorkPlan(table=table, header=header, items=items, options=ScanOptions())
    return WorkRows(plan, keys)


def _unit(item: WorkItem) -> ChangeUnit:
    if item.unit is None:
        raise CorruptFileError("an item of a change log has no unit")
    return item.unit
