"""What `lake rollback` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done, rows_or_at_most
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.branching.facts import RollbackFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = RollbackFacts.of(outcome.plan)
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch is at this snapshot"
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would set' if dry else 'set'} the branch to snapshot {plan.to_snapshot}"
    before = rows_or_at_most(plan.rows_before, plan.rows_before_at_most)
    after = rows_or_at_most(plan.rows_after, plan.rows_after_at_most)
    if before and after:
        text += f" ({before.removesuffix(' rows').removesuffix(' row')} → {after})"
    if hidden := len(plan.hidden_snapshots):
        text += f"; it no longer contains {counted(hidden, 'snapshot')}"
    return dry_or_done(text, dry=dry)
