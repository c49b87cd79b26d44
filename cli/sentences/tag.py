"""What `lake tag` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done, listed
from lake.core.base.outcome import Outcome, Status

_SHOWN_TAGS = 5


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    created, removed = (outcome.plan.get(key) or () for key in ("created", "removed"))
    if outcome.status is Status.NOTHING_TO_DO:
        return "no tag is missing"
    if not created and not removed:
        return listed(len(outcome.result.get("tags", ())), "tag")
    verbs = ("would set", "drop") if outcome.status is Status.DRY_RUN else ("set", "dropped")
    parts = [
        f"{verb} tag{'s' * (len(names) > 1)} {', '.join(names[:_SHOWN_TAGS])}"
        + (f" and {len(names) - _SHOWN_TAGS} more" if len(names) > _SHOWN_TAGS else "")
        for verb, names in zip(verbs, (created, removed), strict=True)
        if names
    ]
    dry = outcome.status is Status.DRY_RUN
    return dry_or_done(", ".join(parts), dry=dry)
