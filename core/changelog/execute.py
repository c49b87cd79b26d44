"""Carry a change log out: its rows to a file, a folder, a stream, or a preview."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake.core.changelog.plan import ChangePlan
from lake.core.changelog.read import AMBIGUOUS, changes_of
from lake.core.changelog.task_unit import Unit
from lake.core.changelog.task_units import units_of
from lake.core.engine.tasks import TaskContext, TaskFunction
from lake.core.exports import export
from lake.core.exports.destinations import Output
from lake.core.exports.export import Noted
from lake.core.outcome import Outcome, Status
from lake.core.scan.execute import previewed
from lake.core.session import Session
from lake.core.types.arrow_schema import schema_from_plain


def describe(plan: ChangePlan) -> Outcome:
    """Tell the plan; no data is read."""
    return _outcome(plan, {})


def preview(plan: ChangePlan) -> Outcome:
    """Read the first changes in this process."""
    result, details = previewed(ChangeRows(plan))
    return _outcome(plan, result, details=details)


def write(session: Session, plan: ChangePlan, output: Output) -> Outcome:
    """Write all changes.

    Raises:
        RefusedError: the output lies in the table, or a file's format cannot be read yet.
        CorruptFileError: a file cannot be read; nothing is left behind.
        BadInputError: the output cannot be written.
    """
    result, noted = export.emit(session, ChangeRows(plan), output)
    return _outcome(plan, result, noted=noted)


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The rows of a change log, oldest commit first."""

    plan: ChangePlan

    def stream(self, noted: Noted) -> Iterator[pa.RecordBatch]:
        """Yield all changes."""
        for unit in units_of(self.plan):
            yield from changes_of(self.plan.table.storage, unit, self.plan.projection, noted)

    def payloads(self) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Yield what each task reads."""
        for unit in units_of(self.plan):
            yield {"unit": unit.to_plain()}, unit.bytes

    @property
    def task(self) -> TaskFunction:
        """What the engine runs with a payload."""
        return write_part

    def check(self, rows: int, noted: Noted) -> None:
        """Nothing tells beforehand how many changes there are; the reader checks each file."""


def write_part(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Task: write a unit's changes to one file; none is there for no changes."""
    unit = Unit.from_plain(payload["unit"])
    projection = schema_from_plain(payload["projection"])
    noted: Noted = Noted()
    changes = changes_of(context.storage, unit, projection, noted)
    yield export.write_part(payload, context, changes, noted)


def _outcome(
    plan: ChangePlan,
    result: Mapping[str, Any],
    *,
    details: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = (),
    noted: Mapping[str, int] | None = None,
) -> Outcome:
    warnings = []
    if noted and noted.get(AMBIGUOUS):
        warnings.append(
            f"{noted[AMBIGUOUS]} times a commit changed several rows of one key: "
            "they are told as deletes and inserts"
        )
    if plan.truncated:
        warnings.append("older snapshots have expired: what they changed is not told")
    return Outcome(
        command="scan",
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=Status.DONE if plan.steps else Status.NOTHING_TO_DO,
        base_snapshot_id=plan.snapshot.snapshot_id if plan.snapshot else None,
        plan=plan.facts(),
        result=result,
        warnings=warnings,
        details=details,
    )
