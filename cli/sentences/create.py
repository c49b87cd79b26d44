"""What `lake create` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.definition.facts import CreationFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table exists already; nothing to do"
    plan = CreationFacts.of(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    by = ", ".join(plan.partition_by)
    parts = [
        counted(len(plan.columns), "column"),
        f"partitioned by {by}" if by else "not partitioned",
        f"format version {plan.format_version}",
    ]
    text = f"{'would create' if dry else 'created'} the table ({', '.join(parts)})"
    return dry_or_done(text, dry=dry)
