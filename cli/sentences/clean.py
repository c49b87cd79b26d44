"""What `lake clean` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import read_by
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted, format_size
from lake.core.maintain.orphans.facts import (
    CleaningFacts,
    CleaningResult,
    PurgeResult,
    RestoreResult,
)
from lake.core.maintain.orphans.options import Mode

# Unreferenced files that every table may have: locks and metadata.
_OWN_FILES = frozenset({"lake", "metadata"})


_KEPT_FILES = {
    "checkpoint": "of checkpoints",
    "foreign": "with names of others",
    "gone": "gone",
    "no-time": "without a time",
    "other-table": "of other tables",
    "outside": "in other folders",
    "prefix-mismatch": "with another prefix",
}


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if isinstance(outcome.result, RestoreResult):
        return f"moved {counted(outcome.result.restored, 'file')} back"
    if isinstance(outcome.result, PurgeResult):
        runs = counted(outcome.result.runs, "run")
        return f"deleted {counted(outcome.result.purged, 'file')} of {runs}"
    plan, result = CleaningFacts.of(outcome.plan), CleaningResult.of(outcome.result)
    kept = [item for item in plan.kept.items() if item[0] not in _OWN_FILES]
    reasons = ", ".join(f"{number:,} {_KEPT_FILES.get(reason, reason)}" for reason, number in kept)
    rest = f"; kept {reasons}" if kept else ""
    listed = counted(plan.listed, "file")
    if outcome.status is Status.NOTHING_TO_DO:
        return f"no orphan files among {listed}{rest}"
    if outcome.status is Status.DRY_RUN:
        files = f"{counted(plan.orphans, 'orphan file')} ({format_size(plan.bytes)})"
        if plan.requests:
            rest += f"; to remove them takes {counted(plan.requests, 'request')}"
        rest += read_by(plan.engine)
        return f"{files} among {listed}{rest}; nothing was changed"
    size = format_size(result.bytes)
    failed = f"; {counted(result.failed, 'file')} could not be removed" * bool(result.failed)
    if result.quarantined:
        return f"moved {counted(result.quarantined, 'orphan file')} ({size}) away{rest}{failed}"
    return f"deleted {counted(result.deleted, 'orphan file')} ({size}){rest}{failed}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the option that a list of orphan files needs to move them; None if there is nothing to do."""
    plan = CleaningFacts.of(outcome.plan)
    if not plan.orphans:
        return None
    return ("--quarantine",) if plan.mode is Mode.LIST else ()
