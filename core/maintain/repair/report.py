"""The outcome of a repair: what is dropped or changed, and which other snapshots it does not mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake.core.base.outcome import Detail, Outcome, Status, first_rows
from lake.core.maintain.repair.names import (
    DANGLING_DELETES,
    DUPLICATE_FILES,
    MISSING_FILES,
    REFS,
    STATISTICS,
    TOTALS,
)

if TYPE_CHECKING:
    from lake.core.maintain.repair.plan import RepairPlan

_SHOWN = 20
_REFS_SHOWN = 5


def preview(plan: RepairPlan, *, verbose: bool) -> Outcome:
    """Return a dry run's outcome."""
    status = Status.NOTHING_TO_DO if plan.is_empty else Status.DRY_RUN
    return outcome_of(plan, status, verbose=verbose)


def outcome_of(plan: RepairPlan, status: Status, *, verbose: bool, **values: Any) -> Outcome:
    """Return an outcome with the plan, the tables and the notes of a repair."""
    details, notes = list[Detail](), list[str]()
    if plan.missing.paths:
        partitions, notes = plan.missing.removals.shown(verbose=verbose)
        details.append(partitions)
    changes = [
        *((DUPLICATE_FILES, path, "in the branch twice") for path in sorted(plan.duplicates.paths)),
        *((MISSING_FILES, path, "data file is gone") for path in plan.missing.paths),
        *((MISSING_FILES, key.path, "delete file") for key in plan.missing.deletes),
        *((DANGLING_DELETES, key.path, "applies to no data file") for key in plan.dangling),
        *((TOTALS, name, f"{old[:40]} becomes {new}") for name, (old, new) in plan.totals.items()),
        *((REFS, item.name, f"{item.kind} of {item.snapshot_id}") for item in plan.refs),
        *((STATISTICS, item.file.statistics_path, item.reason) for item in plan.statistics),
    ]
    rows, more = first_rows(changes, _SHOWN, "changes", every=verbose)
    if rows:
        details.append(Detail("changes", ("repair", "place", "reason"), rows))
    return Outcome(
        status=status,
        base_snapshot_id=plan.head_id,
        plan=plan.facts(),
        warnings=_warnings(plan),
        details=details,
        notes=[*notes, *more],
        **values,
    )


def _warnings(plan: RepairPlan) -> list[str]:
    """Return what the repair does not mend."""
    found = []
    missing = plan.missing
    if missing.snapshots:
        named = f", e.g. {', '.join(missing.refs[:_REFS_SHOWN])}" if missing.refs else ""
        found.append(
            f"{missing.snapshots} snapshots keep the missing files{named}: reads of them fail until they expire"
        )
    if missing.uncertain:
        found.append(
            f"{len(missing.uncertain)} files are links, folders or changing, e.g. {missing.uncertain[0]}: they are "
            "not known to be gone, and stay"
        )
    found += [
        f"{name} refers to a snapshot that does not exist, and is not dropped here"
        for name in plan.kept_refs
    ]
    return found
