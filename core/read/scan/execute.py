"""Run a scan: write its rows to a file, a folder or a stream, or preview them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.plain import PlainData
from lake.core.data.deletes.apply import Deletes, EqualityGroups, read_rows
from lake.core.data.keys.row_keys import RowKeys
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_batches
from lake.core.engine.tasks import Task, TaskContext, TaskFunction
from lake.core.io.storage.opened_ahead import each_opened
from lake.core.io.storage.storage import Storage
from lake.core.read.exports import export
from lake.core.read.exports.destinations import Output
from lake.core.read.exports.export import Noted, Part, PartReport
from lake.core.read.exports.facts import KeyCounts, ReadResult
from lake.core.read.scan.plan import ScanOptions, ScanPlan, plan_scan
from lake.core.read.scan.scan_keys import (
    ROW_GROUPS_SKIPPED,
    ROWS_WITHOUT_PARTNER,
    ScanKeys,
    row_keys,
)
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.catalog import Table
from lake.core.table.reporting.scan_report import scan_report
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.summary import engine_marks
from lake.core.transaction.session import Session

_SHOWN_SNAPSHOTS = 20
# Counts the rows that were deleted.
DROPPED = "dropped"


def reported_plan(
    session: Session, table: Table, options: ScanOptions, keys: ScanKeys | None = None
) -> ScanPlan:
    """Plan a scan as `plan_scan` does, and report it to the catalog's server, if it takes reports."""
    begun = session.clock.monotonic()
    plan = plan_scan(table, options, keys, engine_of=session.planning_engine)
    if plan.snapshot is not None:
        seconds = session.clock.monotonic() - begun
        table.catalog.report(table, partial(_report, plan, plan.snapshot.snapshot_id, seconds))
    return plan


def _report(plan: ScanPlan, snapshot_id: int, seconds: float) -> dict[str, Any]:
    """Return the report about a plan that took some seconds."""
    ids, found = sorted(plan.projection.field_ids), plan.found
    return scan_report(
        f"{plan.table.catalog.name}.{plan.table.identifier}",
        snapshot_id,
        plan.condition,
        plan.schema,
        {number: str(plan.projection.find_column_name(number)) for number in ids},
        seconds,
        {
            "result-data-files": found.count,
            "result-delete-files": 0 if plan.options.incremental else found.delete_count,
            "total-data-manifests": found.manifests,
            "scanned-data-manifests": found.manifests - found.skipped_manifests,
            "skipped-data-manifests": found.skipped_manifests,
            "total-delete-manifests": found.delete_manifests.num_rows,
            "total-file-size-in-bytes": plan.bytes,
            "skipped-data-files": found.skipped_files,
        },
        engine_marks(),
    )


def describe(plan: ScanPlan) -> Outcome:
    """Return the plan as an outcome; no data is read."""
    return _outcome(plan, NoFacts())


def preview(plan: ScanPlan) -> Outcome:
    """Read the first rows in this process and return them as an outcome."""
    result, details = previewed(ScanRows(plan))
    return _outcome(plan, result, details=details)


def write(session: Session, plan: ScanPlan, output: Output) -> Outcome:
    """Write all rows.

    Raises:
        RefusedError: the output is inside the table's folders, or a file's format is not supported.
        CorruptFileError: a file cannot be read; the output is removed.
        BadInputError: the output cannot be written.
    """
    result, noted = export.emit(session, ScanRows(plan), output)
    counts = None if plan.keys is None else key_counts(noted)
    return _outcome(plan, replace(result, keys=counts))


def previewed(source: export.RowSource[Any]) -> tuple[ReadResult, list[Detail]]:
    """Read the first rows; return them as a result and as a table to print."""
    rows = export.first_rows(source)
    fields = source.plan.projection.fields
    names = [field.name for field in fields]
    types = [type_text(field.field_type) for field in fields]
    result = ReadResult(rows=len(rows), bytes_written=0, preview=rows)
    return result, [Detail("rows", names, [[row[name] for name in names] for row in rows], types)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask(PlainData):
    """Read the files of a split and write their rows to a part."""

    part: Part
    reading: ReadSettings
    files: Sequence[FileSlice]


# A slice, how it is read, and its deletes.
_Item: TypeAlias = tuple[FileSlice, ReadSettings, Deletes]


@dataclass(frozen=True, slots=True)
class ScanRows:
    """The rows of a scan, in the order of its splits."""

    plan: ScanPlan

    def stream(self, noted: Noted, wanted: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows; see `lake.core.read.exports.export.RowSource`."""
        storage, every = self.plan.table.storage, self.plan.found.equality_deletes()
        keys = row_keys(self.shared)
        # Most splits have the same equality deletes.
        with closing(EqualityGroups(storage, every, self.plan.reading(every))) as groups:

            def slices() -> Iterator[_Item]:
                for split in self.plan.reads():
                    reading = replace(self.plan.reading(split.deletes), keys=keys)
                    deletes = Deletes(storage, reading, split.slices, groups)
                    for item in split.slices:
                        yield item, reading, deletes

            for item, reading, deletes in _opened(storage, slices(), wanted):
                dropped = deletes.dropped
                yield from read_batches(storage, item, reading, deletes)
                noted[DROPPED] += deletes.dropped - dropped
        note_keys(keys, noted)

    def tasks(self, part: Callable[[int], Part]) -> Iterator[Task[ScanTask]]:
        """Yield a task for each split."""
        for number, split in enumerate(self.plan.reads()):
            reading = self.plan.reading(split.deletes)
            payload = ScanTask(part=part(number), reading=reading, files=split.slices)
            sizes = (item.length or item.size_bytes - item.start for item in split.slices)
            yield Task(payload, sum(sizes))

    @property
    def shared(self) -> bytes:
        """The keys that rows must have; empty for all rows."""
        return b"" if self.plan.keys is None else self.plan.keys.to_bytes()

    @property
    def task(self) -> TaskFunction[ScanTask, PartReport]:
        """The function that writes a part."""
        return write_part

    def check(self, rows: int, noted: Noted) -> None:
        """Compare the number of rows read, including deleted ones, with the metadata, if all rows were read.

        Raises:
            CorruptFileError: the numbers differ.
        """
        complete = not self.plan.chooses_rows and self.plan.options.limit is None
        if complete and rows + noted[DROPPED] != self.plan.records:
            raise CorruptFileError(
                f"read {rows + noted[DROPPED]} rows, but the files have {self.plan.records} by their metadata"
            )


def _opened(storage: Storage, items: Iterator[_Item], wanted: int | None) -> Iterator[_Item]:
    """Yield what is read, opened ahead: no more than a number of wanted rows needs, if all rows count."""
    if wanted is None:
        return each_opened(storage, items, itemgetter(0), lambda item: item[2].prepare(item[0]))
    # If files have fewer rows than the metadata says, more of them are opened.
    parts = (_needed(items, wanted), items)
    return chain.from_iterable(each_opened(storage, part, itemgetter(0)) for part in parts)


def _needed(items: Iterator[_Item], wanted: int) -> Iterator[_Item]:
    """Yield the items that have a number of rows by the metadata; all if it is not known which rows are left."""
    for item in items:
        yield item
        file, reading, _ = item
        is_whole = file.start == 0 and file.length is None
        if is_whole and not (reading.deletes or reading.row_filter or reading.keys):
            wanted -= file.record_count
        if wanted <= 0:
            return


def write_part(task: ScanTask, context: TaskContext) -> Iterator[PartReport]:
    """Task: write a split's rows to one file, or no file if there are no rows."""
    noted: Noted = Noted()
    expected = sum(file.take_rows or file.record_count for file in task.files)
    yield export.write_part(task.part, context, _split_rows(task, context, noted), noted, expected)


def _split_rows(task: ScanTask, context: TaskContext, noted: Noted) -> Iterator[pa.RecordBatch]:
    keys = row_keys(context.shared)
    reading = replace(task.reading, keys=keys)
    with closing(Deletes(context.storage, reading, task.files)) as deletes:
        yield from read_rows(context.storage, task.files, reading, deletes)
        noted[DROPPED] += deletes.dropped
    note_keys(keys, noted)


def note_keys(keys: RowKeys | None, noted: Noted) -> None:
    """Add what the keys of a task excluded to the counters of the reader."""
    if keys is not None:
        noted[ROW_GROUPS_SKIPPED] += keys.row_groups_skipped
        noted[ROWS_WITHOUT_PARTNER] += keys.rows_without_partner


def key_counts(noted: Noted) -> KeyCounts:
    """Return the counters of a scan with keys for its result."""
    return KeyCounts(
        row_groups_skipped=noted[ROW_GROUPS_SKIPPED],
        rows_without_partner=noted[ROWS_WITHOUT_PARTNER],
    )


def _outcome(
    plan: ScanPlan,
    result: Facts,
    details: Sequence[Detail] = (),
) -> Outcome:
    warnings = []
    if plan.skipped:
        skipped = [(item.snapshot_id, ancestry.operation_of(item)) for item in plan.skipped]
        warnings.append(skipped_message(skipped))
    if plan.truncated:
        warnings.append(
            "older snapshots have expired: the rows that they appended are not in this scan"
        )
    warnings += plan.keys.warnings if plan.keys else ()
    warnings += [f"rows may be missing: {doubt}" for doubt in plan.found.doubts]
    return Outcome(
        status=Status.DONE if plan.found.count else Status.NOTHING_TO_DO,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
        warnings=warnings,
        details=details,
    )


def skipped_message(snapshots: Sequence[tuple[int, str]]) -> str:
    """Return a warning about snapshots that an append scan does not show, each with its operation."""
    shown = ", ".join(
        f"{number} ({operation})" for number, operation in snapshots[:_SHOWN_SNAPSHOTS]
    )
    more = len(snapshots) - _SHOWN_SNAPSHOTS
    return (
        f"skipped {_not_appended(len(snapshots))} ({Option.CHANGES} shows the changes): {shown}"
        + (f" and {more} more" if more > 0 else "")
    )


def _not_appended(number: int) -> str:
    return (
        "1 snapshot that is not an append"
        if number == 1
        else f"{number} snapshots that are not appends"
    )
