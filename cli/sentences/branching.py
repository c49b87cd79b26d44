"""What the commands in `lake.commands.branching` did to branches and tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.sentences.words import NOTHING_WRITTEN, Facts, counted, listed, rows_or_less
from lake.core.base.outcome import Outcome, Status

_SHOWN_TAGS = 5


def _rollback(outcome: Outcome) -> str:
    plan = Facts(outcome.plan)
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch is at this snapshot"
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would set' if dry else 'set'} the branch to snapshot {plan['to_snapshot']}"
    before, after = (rows_or_less(plan, name) for name in ("rows_before", "rows_after"))
    if before and after:
        text += f" ({before.removesuffix(' rows').removesuffix(' row')} → {after})"
    hidden = plan["hidden_snapshots"] or ()
    if hidden:
        text += f"; it no longer contains {counted(len(hidden), 'snapshot')}"
    return f"dry run: {text}{NOTHING_WRITTEN}" if dry else text


def _ref(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch or tag is so already; nothing to do"
    plan = Facts(outcome.plan)
    if not plan["ref"]:
        return listed(len(outcome.result.get("refs", ())), "ref")
    dry = outcome.status is Status.DRY_RUN
    name = f"{plan['type']} {plan['ref']}"
    if not plan["to_snapshot"]:
        text = f"{'would drop' if dry else 'dropped'} {name}"
    elif not plan["from_snapshot"]:
        text = f"{'would create' if dry else 'created'} {name} at snapshot {plan['to_snapshot']}"
    else:
        text = (
            f"{'would move' if dry else 'moved'} {name} forward to snapshot {plan['to_snapshot']}"
        )
    if hidden := len(plan["hidden_snapshots"] or ()):
        text += f"; no branch or tag contains {counted(hidden, 'snapshot')} now"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _pick(outcome: Outcome) -> str:
    plan = Facts(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    source = f"snapshot {plan['source_snapshot']}"
    branch = f"branch {outcome.branch}" if outcome.branch else "the branch"
    if plan["wap_id"] and outcome.command == "publish":
        source += f" (WAP id {plan['wap_id']})"
    if plan["fast_forward"]:
        verb = "would move" if dry else "moved"
        return f"{'dry run: ' * dry}{verb} {branch} to {source}{NOTHING_WRITTEN * dry}"
    verb, rows = "would apply" if dry else "applied", counted(plan["added_rows"], "row")
    files = f"{counted(plan['added_files'], 'file')} with {rows} added"
    if plan["removed_files"]:
        files += f", {counted(plan['removed_files'], 'file')} replaced"
    text = f"{verb} {source} to {branch}: {files}"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _tag(outcome: Outcome) -> str:
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
    return f"{'dry run: ' * dry}{', '.join(parts)}{NOTHING_WRITTEN * dry}"


SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "cherry-pick": _pick,
    "publish": _pick,
    "ref": _ref,
    "rollback": _rollback,
    "tag": _tag,
}
