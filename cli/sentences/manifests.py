"""What `lake manifests` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.conditions import conditions, due
from lake.cli.sentences.words import NOTHING_WRITTEN
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.manifest_rewrite.facts import (
    ManifestRewriteFacts,
    ManifestRewriteResult,
)


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = ManifestRewriteFacts.of(outcome.plan)
    if outcome.status is Status.NOTHING_TO_DO or not plan.rewritten:
        dry = "dry run: " * (outcome.status is Status.DRY_RUN)
        if plan.condition and not plan.condition.is_due:
            return f"{dry}a rewrite is not due: {conditions(plan.condition, holds=False)}"
        return f"{dry}{counted(plan.manifests, 'manifest')}; nothing is worth rewriting"
    rewritten = counted(plan.rewritten, "manifest")
    if outcome.status is Status.DRY_RUN:
        written = f"{rewritten} as {plan.rewritten_as:,}"
        return f"dry run: would rewrite {written}{NOTHING_WRITTEN}{due(plan.condition)}"
    left = ManifestRewriteResult.of(outcome.result).manifests
    now = "" if left is None else f"; the branch has {left:,} now"
    return f"rewrote {rewritten}{now}{due(plan.condition)}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    return () if ManifestRewriteFacts.of(outcome.plan).rewritten else None
