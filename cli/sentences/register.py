"""What `lake register` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done, rows_or_at_most
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.definition.facts import RegistrationFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is registered already; nothing to do"
    plan, dry = RegistrationFacts.of(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would register' if dry else 'registered'} the table at {plan.location}"
    if rows := rows_or_at_most(plan.rows, plan.rows_at_most):
        text += f" with {rows}"
    return dry_or_done(text, dry=dry)
