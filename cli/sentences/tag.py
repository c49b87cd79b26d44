"""What `lake tag` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done, listed
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.branching.facts import TagsFacts

_SHOWN_TAGS = 5


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = TagsFacts.of(outcome.plan)
    if outcome.status is Status.NOTHING_TO_DO:
        return "no tag is missing"
    if not plan.created and not plan.removed:
        return listed(len(TagsFacts.of(outcome.result).tags or ()), "tag")
    dry = outcome.status is Status.DRY_RUN
    verbs = ("would set", "drop") if dry else ("set", "dropped")
    parts = [
        f"{verb} tag{'s' * (len(names) > 1)} {', '.join(names[:_SHOWN_TAGS])}"
        + (f" and {len(names) - _SHOWN_TAGS} more" if len(names) > _SHOWN_TAGS else "")
        for verb, names in zip(verbs, (plan.created, plan.removed), strict=True)
        if names
    ]
    return dry_or_done(", ".join(parts), dry=dry)
