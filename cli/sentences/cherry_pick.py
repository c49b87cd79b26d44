"""What `lake cherry-pick` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.branching.facts import PickFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = PickFacts.of(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    source = f"snapshot {plan.source_snapshot}"
    branch = f"branch {outcome.branch}" if outcome.branch else "the branch"
    if plan.wap_id and outcome.command == "publish":
        source += f" (WAP id {plan.wap_id})"
    if plan.fast_forward:
        verb = "would move" if dry else "moved"
        return dry_or_done(f"{verb} {branch} to {source}", dry=dry)
    verb, rows = "would apply" if dry else "applied", counted(plan.added_rows, "row")
    files = f"{counted(plan.added_files, 'file')} with {rows} added"
    if plan.removed_files:
        files += f", {counted(plan.removed_files, 'file')} replaced"
    text = f"{verb} {source} to {branch}: {files}"
    return dry_or_done(text, dry=dry)
