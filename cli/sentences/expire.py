"""What `lake expire` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import read_by
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted, format_age, format_size
from lake.core.maintain.expiration.facts import ExpirationFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = ExpirationFacts.of(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    counts = plan if dry else ExpirationFacts.of(outcome.result)
    files = counted(counts.files, "file")
    snapshots = counted(counts.snapshots, "snapshot")
    size = format_size(counts.bytes)
    refs = f" and {counted(counts.refs, 'ref')}" if counts.refs else ""
    nothing = "; ".join(["nothing to expire", *_kept(plan)])
    if dry and not counts.snapshots + counts.refs:
        return f"dry run: {nothing}"
    if dry:
        # Metadata does not contain the sizes of manifest lists.
        known = f" ({size})" if counts.bytes else ""
        rest = f"{known}{read_by(plan.engine)}; nothing was changed"
        return f"dry run: would expire {snapshots}{refs} and delete {files}{rest}"
    if outcome.status is Status.NOTHING_TO_DO:
        return nothing
    kept = sum(plan.kept_snapshots.values())
    if kept and counts.snapshots:
        snapshots = f"{counts.snapshots:,} of {counted(counts.snapshots + kept, 'snapshot')}"
    text = f"expired {snapshots}{refs}"
    if counts.files:
        text += f", deleted {files}" + (f", freed {size}" if counts.bytes else "")
    else:
        text += ", deleted no files"
    if counts.failed_deletes:
        text += f"; {counted(counts.failed_deletes, 'file')} could not be deleted"
    return text


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    plan = ExpirationFacts.of(outcome.plan)
    return () if plan.snapshots + plan.refs else None


# What keeps snapshots, by the reason in the plan: for one snapshot and for several.
_KEPT = {
    "referenced": ("is the head of a branch or tag", "are heads of branches and tags"),
    "run": ("is kept by the tag of a run", "are kept by tags of runs"),
    "recent": ("is younger than {age}", "are younger than {age}"),
    "last-n": ("is among the newest to keep", "are among the newest to keep"),
    "unreferenced-recent": (
        "is on no branch, but younger than {age}",
        "are on no branch, but younger than {age}",
    ),
    "other-branch": ("is on another branch", "are on other branches"),
    "not-named": ("was not named", "were not named"),
    "checkpoint": ("is needed by a Flink job", "are needed by Flink jobs"),
    "consumer": ("is needed by a consumer", "are needed by consumers"),
}


def _kept(plan: ExpirationFacts) -> list[str]:
    """Return why snapshots are kept, the most frequent reason first."""
    reasons = sorted(plan.kept_snapshots.items(), key=lambda item: -item[1])
    words: list[str] = []
    for reason, number in reasons:
        one, several = _KEPT.get(reason, (f"is kept ({reason})", f"are kept ({reason})"))
        if reason == "referenced" and list(plan.kept_refs) in ([], ["main"]):
            one = "is the head of main"
        text = (one if number == 1 else several).format(age=format_age(plan.max_snapshot_age_ms))
        words.append(f"{number:,} {text}" if words else f"{counted(number, 'snapshot')} {text}")
    return [", ".join(words)] if words else []
