"""What `lake rename` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import Facts, dry_or_done
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, dry = Facts(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would rename' if dry else 'renamed'} the table to {plan['to']}"
    return dry_or_done(text, dry=dry)
