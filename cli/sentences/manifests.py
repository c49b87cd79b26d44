"""What `lake manifests` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.conditions import conditions, due
from lake.cli.sentences.words import NOTHING_WRITTEN, Facts, counted
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if outcome.status is Status.NOTHING_TO_DO or not plan["rewritten"]:
        dry = "dry run: " * (outcome.status is Status.DRY_RUN)
        if outcome.plan.get("is_due") is False:
            return f"{dry}a rewrite is not due: {conditions(plan, holds=False)}"
        return f"{dry}{counted(plan['manifests'], 'manifest')}; nothing is worth rewriting"
    if outcome.status is Status.DRY_RUN:
        written = f"{counted(plan['rewritten'], 'manifest')} as {plan['rewritten_as']:,}"
        return f"dry run: would rewrite {written}{NOTHING_WRITTEN}{due(plan)}"
    rewritten = counted(plan["rewritten"], "manifest")
    left = result["manifests"]
    now = "" if left is None else f"; the branch has {left:,} now"
    return f"rewrote {rewritten}{now}{due(plan)}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    plan = Facts(outcome.plan)
    return () if plan["rewritten"] else None
