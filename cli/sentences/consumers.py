"""What `lake consumers` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import listed
from lake.commands.reports.facts import ConsumerDropFacts, ConsumersResult
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = outcome.plan
    if not isinstance(plan, ConsumerDropFacts):
        return listed(len(ConsumersResult.of(outcome.result).consumers), "consumer")
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would remove consumer {plan.dropped}; nothing was changed"
    return f"removed consumer {plan.dropped}: expiry does not wait for its reader any more"
