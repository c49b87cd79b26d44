"""What `lake rollback` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import Facts, counted, dry_or_done, rows_or_less
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = Facts(outcome.plan)
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch is at this snapshot"
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would set' if dry else 'set'} the branch to snapshot {plan['to_snapshot']}"
    before, after = (rows_or_less(plan, name) for name in ("rows_before", "rows_after"))
    if before and after:
        text += f" ({before.removesuffix(' rows').removesuffix(' row')} → {after})"
    hidden = plan["hidden_snapshots"] or ()
    if hidden:
        text += f"; it no longer contains {counted(len(hidden), 'snapshot')}"
    return dry_or_done(text, dry=dry)
