"""What `lake expire` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_duration, format_size

_EXPIRED_FILES = (
    "data_files",
    "position_delete_files",
    "equality_delete_files",
    "manifests",
    "manifest_lists",
    "statistics_files",
)


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    counts = Facts(outcome.plan if outcome.status is Status.DRY_RUN else outcome.result)
    files = counted(sum(counts[name] for name in _EXPIRED_FILES), "file")
    snapshots = counted(counts["snapshots"], "snapshot")
    size = format_size(counts["bytes"])
    refs = f" and {counted(counts['refs'], 'ref')}" if counts["refs"] else ""
    nothing = "; ".join(["nothing to expire", *_kept(Facts(outcome.plan))])
    if outcome.status is Status.DRY_RUN and not counts["snapshots"] + counts["refs"]:
        return f"dry run: {nothing}"
    if outcome.status is Status.DRY_RUN:
        # Metadata does not contain the sizes of manifest lists.
        known = f" ({size})" if counts["bytes"] else ""
        return f"dry run: would expire {snapshots}{refs} and delete {files}{known}; nothing was changed"
    if outcome.status is Status.NOTHING_TO_DO:
        return nothing
    kept = sum((outcome.plan.get("kept_snapshots") or {}).values())
    if kept and counts["snapshots"]:
        snapshots = f"{counts['snapshots']:,} of {counted(counts['snapshots'] + kept, 'snapshot')}"
    deleted = sum(counts[name] for name in _EXPIRED_FILES)
    text = f"expired {snapshots}{refs}"
    if deleted:
        text += f", deleted {files}" + (f", freed {size}" if counts["bytes"] else "")
    else:
        text += ", deleted no files"
    if counts["failed_deletes"]:
        text += f"; {counted(counts['failed_deletes'], 'file')} could not be deleted"
    return text


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    plan = Facts(outcome.plan)
    return () if plan["snapshots"] + plan["refs"] else None


# What keeps snapshots, by the reason in the plan: for one snapshot and for several.
_KEPT = {
    "referenced": ("is the head of a branch or tag", "are heads of branches and tags"),
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


def _kept(plan: Facts) -> list[str]:
    """Return why snapshots are kept, the most frequent reason first."""
    reasons = sorted((plan["kept_snapshots"] or {}).items(), key=lambda item: -item[1])
    words: list[str] = []
    for reason, number in reasons:
        one, several = _KEPT.get(reason, (f"is kept ({reason})", f"are kept ({reason})"))
        if reason == "referenced" and plan["kept_refs"] in ([], ["main"], 0):
            one = "is the head of main"
        text = (one if number == 1 else several).format(age=_age(plan["max_snapshot_age_ms"]))
        words.append(f"{number:,} {text}" if words else f"{counted(number, 'snapshot')} {text}")
    return [", ".join(words)] if words else []


def _age(milliseconds: int) -> str:
    """Return a duration in the largest unit that divides it."""
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if milliseconds and milliseconds % length == 0:
            return counted(milliseconds // length, unit)
    return format_duration(milliseconds / 1000)
