"""What `lake ref` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done, listed
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.branching.facts import RefChangeFacts, RefsResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch or tag is so already; nothing to do"
    plan = RefChangeFacts.of(outcome.plan)
    if not plan.ref:
        return listed(len(RefsResult.of(outcome.result).refs), "ref")
    dry = outcome.status is Status.DRY_RUN
    name = f"{plan.type} {plan.ref}"
    if not plan.to_snapshot:
        text = f"{'would drop' if dry else 'dropped'} {name}"
    elif not plan.from_snapshot:
        text = f"{'would create' if dry else 'created'} {name} at snapshot {plan.to_snapshot}"
    else:
        text = f"{'would move' if dry else 'moved'} {name} forward to snapshot {plan.to_snapshot}"
    if hidden := len(plan.hidden_snapshots):
        text += f"; no branch or tag contains {counted(hidden, 'snapshot')} now"
    return dry_or_done(text, dry=dry)
