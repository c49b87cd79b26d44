"""What `lake register` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import Facts, dry_or_done, rows_or_less
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is registered already; nothing to do"
    plan, dry = Facts(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would register' if dry else 'registered'} the table at {plan['location']}"
    if rows := rows_or_less(plan, "rows"):
        text += f" with {rows}"
    return dry_or_done(text, dry=dry)
