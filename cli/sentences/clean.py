"""What `lake clean` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_size

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
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if "restored" in result:
        return f"moved {counted(result['restored'], 'file')} back"
    if "purged" in result:
        return f"deleted {counted(result['purged'], 'file')} of {counted(result['runs'], 'run')}"
    kept = [item for item in (outcome.plan.get("kept") or {}).items() if item[0] not in _OWN_FILES]
    reasons = ", ".join(f"{number:,} {_KEPT_FILES.get(reason, reason)}" for reason, number in kept)
    rest = f"; kept {reasons}" if kept else ""
    if outcome.status is Status.NOTHING_TO_DO:
        return f"no orphan files among {counted(plan['listed'], 'file')}{rest}"
    if outcome.status is Status.DRY_RUN:
        files = f"{counted(plan['orphans'], 'orphan file')} ({format_size(plan['bytes'])})"
        if plan["requests"]:
            rest += f"; to remove them takes {counted(plan['requests'], 'request')}"
        return f"{files} among {counted(plan['listed'], 'file')}{rest}; nothing was changed"
    size, moved = format_size(result["bytes"]), result["quarantined"]
    failed = f"; {counted(result['failed'], 'file')} could not be removed" * bool(result["failed"])
    if moved:
        return f"moved {counted(moved, 'orphan file')} ({size}) away{rest}{failed}"
    return f"deleted {counted(result['deleted'], 'orphan file')} ({size}){rest}{failed}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the option that a list of orphan files needs to move them; None if there is nothing to do."""
    if not outcome.plan.get("orphans"):
        return None
    return ("--quarantine",) if outcome.plan.get("mode") == "list" else ()
