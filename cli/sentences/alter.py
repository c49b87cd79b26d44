"""What `lake alter` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import NOTHING_WRITTEN
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.definition.facts import AlterationFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is so already; nothing to do"
    plan, dry = AlterationFacts.of(outcome.plan), outcome.status is Status.DRY_RUN
    changes = [
        (plan.added_columns, "add", "added"),
        (plan.renamed_columns, "rename", "renamed"),
        (plan.dropped_columns, "drop", "dropped"),
        (plan.widened_columns, "widen", "widened"),
    ]
    parts = [
        f"{would if dry else did} {counted(len(columns), 'column')}"
        for columns, would, did in changes
        if columns
    ]
    for terms, verb in ((plan.partition_by, "partitioned"), (plan.sort_by, "sorted")):
        if terms is not None:
            parts.append(_arranged(verb, ", ".join(terms), dry=dry))
    if changed := len(plan.set) + len(plan.unset):
        properties = f"{changed:,} propert{'y' if changed == 1 else 'ies'}"
        parts.append(f"{'change' if dry else 'changed'} {properties}")
    if plan.format_version:
        verb = "upgrade" if dry else "upgraded"
        parts.append(f"{verb} the table to format version {plan.format_version}")
    return f"{'dry run: would ' * dry}{', '.join(parts)}{NOTHING_WRITTEN * dry}"


def _arranged(verb: str, terms: str, *, dry: bool) -> str:
    """Return how new files are partitioned or sorted after a change."""
    by = f"{verb} by {terms}" if terms else f"not {verb}"
    return f"write new files {by}" if dry else f"new files are {by}"
