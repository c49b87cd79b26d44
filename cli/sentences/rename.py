"""What `lake rename` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.definition.facts import RenameFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, dry = RenameFacts.of(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would rename' if dry else 'renamed'} the table to {plan.to}"
    return dry_or_done(text, dry=dry)
