"""Run a change log scan: write its rows to a file, a folder or a stream, or preview them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.plain import PlainData
from lake.core.data.keys.row_keys import RowKeys
from lake.core.engine.tasks import Task, TaskContext, TaskFunction
from lake.core.read.changelog.plan import ChangelogPlan
from lake.core.read.changelog.read import AMBIGUOUS, changes_of
from lake.core.read.changelog.task_unit import ChangeUnit
from lake.core.read.changelog.task_units import units_of
from lake.core.read.exports import export
from lake.core.read.exports.destinations import Output
from lake.core.read.exports.export import Noted, Part, PartReport
from lake.core.read.scan.execute import key_counts, note_keys, previewed
from lake.core.read.scan.scan_keys import row_keys
from lake.core.transaction.session import Session


def describe(plan: ChangelogPlan) -> Outcome:
    """Return the plan as an outcome; no data is read."""
    return _outcome(plan, NoFacts())


def preview(plan: ChangelogPlan) -> Outcome:
    """Read the first changes in this process and return them as an outcome."""
    result, details = previewed(ChangeRows(plan))
    return _outcome(plan, result, details=details)


def write(session: Session, plan: ChangelogPlan, output: Output) -> Outcome:
    """Write all changes.

    Raises:
        RefusedError: the output is inside the table's folders, or a file's format is not supported.
        CorruptFileError: a file cannot be read; the output is removed.
        BadInputError: the output cannot be written.
    """
    result, noted = export.emit(session, ChangeRows(plan), output)
    counts = None if plan.keys is None else key_counts(noted)
    return _outcome(plan, replace(result, keys=counts), noted=noted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogTask(PlainData):
    """Read a unit and write its changes to a part."""

    part: Part
    unit: ChangeUnit


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The rows of a change log, oldest commit first."""

    plan: ChangelogPlan

    def stream(self, noted: Noted, wanted: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all changes; see `lake.core.read.exports.export.RowSource`."""
        keys = row_keys(self.shared)
        storage, projection = self.plan.table.storage, self.plan.projection
        for unit in units_of(self.plan):
            chosen = with_keys(unit, keys)
            yield from changes_of(storage, chosen, projection, noted, whole=wanted is None)
        note_keys(keys, noted)

    def tasks(self, part: Callable[[int], Part]) -> Iterator[Task[ChangelogTask]]:
        """Yield a task for each unit."""
        for number, unit in enumerate(units_of(self.plan)):
            yield Task(ChangelogTask(part=part(number), unit=unit), unit.bytes)

    @property
    def shared(self) -> bytes:
        """The keys that rows must have; empty for all rows."""
        return b"" if self.plan.keys is None else self.plan.keys.to_bytes()

    @property
    def task(self) -> TaskFunction[ChangelogTask, PartReport]:
        """The function that writes a part."""
        return write_part

    def check(self, rows: int, noted: Noted) -> None:
        """Do nothing: the number of changes is not known in advance, and the reader checks each file."""


def write_part(task: ChangelogTask, context: TaskContext) -> Iterator[PartReport]:
    """Task: write a unit's changes to one file, or no file if there are no changes."""
    noted: Noted = Noted()
    yield export.write_part(task.part, context, _changes(task, context, noted), noted)


def _changes(task: ChangelogTask, context: TaskContext, noted: Noted) -> Iterator[pa.RecordBatch]:
    keys = row_keys(context.shared)
    unit = with_keys(task.unit, keys)
    yield from changes_of(context.storage, unit, task.part.projection, noted)
    note_keys(keys, noted)


def with_keys(unit: ChangeUnit, keys: RowKeys | None) -> ChangeUnit:
    """Return a unit with the keys that its rows must have.

    Rows that are compared are all read, or all tested: one of two equal rows must not be missing.
    """
    if keys is None or (unit.matched and keys.test is None):
        return unit
    return replace(unit, settings=replace(unit.settings, keys=keys))


def _outcome(
    plan: ChangelogPlan,
    result: Facts,
    *,
    details: Sequence[Detail] = (),
    noted: Mapping[str, int] | None = None,
) -> Outcome:
    warnings = list(plan.keys.warnings) if plan.keys else []
    if noted and noted.get(AMBIGUOUS):
        warnings.append(
            f"{noted[AMBIGUOUS]} times a commit changed several rows with one key: "
            "they are shown as deletes and inserts"
        )
    if plan.truncated:
        warnings.append("older snapshots have expired: their changes are not in this scan")
    return Outcome(
        status=Status.DONE if plan.steps else Status.NOTHING_TO_DO,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
        warnings=warnings,
        details=details,
    )
