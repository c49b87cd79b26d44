"""What the commands in `lake.commands.maintenance` did to what a table already has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.sentences.words import NOTHING_WRITTEN, Facts, counted, remaining, rows_or_less
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_duration, format_size, readable_time


def _compact(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if outcome.status is Status.DRY_RUN and not plan["groups"]:
        return f"dry run: {_already_compact(plan)}"
    if outcome.status is Status.DRY_RUN:
        files = f"{counted(plan['input_files'], 'file')} ({format_size(plan['input_bytes'])})"
        groups = counted(plan["groups"], "group")
        outputs = counted(plan["expected_output_files"], "file")
        rest = remaining(plan["remaining_files"], "file")
        return f"dry run: would rewrite {files} in {groups} into about {outputs}{rest}{NOTHING_WRITTEN}{_due(plan)}"
    if outcome.status is Status.NOTHING_TO_DO:
        if plan.get("is_due") is False:
            return f"compaction is not due: {_conditions(plan, holds=False)} since the last one"
        return _already_compact(plan)
    text = (
        f"{counted(result['rewritten_files'], 'file')} → {result['added_files']:,}, "
        f"{format_size(result['rewritten_bytes'])} → {format_size(result['added_bytes'])}, "
        f"{counted(result['rows_out'], 'row')} unchanged"
    )
    if result["rows_dropped_by_deletes"]:
        text += f", removed {counted(result['rows_dropped_by_deletes'], 'deleted row')} permanently"
    if result["removed_delete_files"]:
        text += f", removed {counted(result['removed_delete_files'], 'delete file')}"
    if result["failed_groups"]:
        text += f"; {counted(result['failed_groups'], 'group')} failed"
    return text + remaining(plan["remaining_files"], "file") + _due(plan)


def _conditions(plan: Facts, *, holds: bool) -> str:
    """Return the comparisons of a condition that hold, or those that do not, with the values in their units."""
    units: dict[str, Callable[[int], str]] = {
        "age": lambda milliseconds: format_duration(milliseconds / 1000),
        "bytes": format_size,
    }
    texts = []
    for item in plan["conditions"]:
        if (item["holds"] is True) != holds:
            continue
        name, _, limit = item["condition"].partition(" ")
        value = item["value"]
        shown = "unknown" if value is None else units.get(name, "{:,}".format)(value)
        if value is not None and item["holds"] is None:
            shown += " or more"
        texts.append(f"{name} {shown} ({'' if holds else 'needs '}{limit})")
    return ", ".join(texts)


def _due(plan: Facts) -> str:
    """Return why a run was due; empty if it had no condition."""
    return f"; due: {_conditions(plan, holds=True)}" if plan["is_due"] else ""


def _already_compact(plan: Facts) -> str:
    files = plan["total_data_files"]
    busy = plan["busy_partitions"]
    if busy:
        return f"nothing to compact: {counted(busy, 'partition')} changed too recently"
    if not files:
        return "nothing to compact"
    average = format_size(plan["total_files_size"] // files)
    alone = {reason: item["files"] for reason, item in (plan["left_alone"] or {}).items()}
    if moved := (plan["left_alone"] or {}).get("more-partitions"):
        return (
            f"nothing to compact: {counted(moved['files'], 'file')} of older partition specs would become about "
            f"{moved['expected_output_files']:,} in partition spec {moved['spec_id']}; "
            f"--spec-id {moved['spec_id']} rewrites them"
        )
    if few := alone.get("few-files"):
        small = f"{few:,} of {counted(files, 'file')}" if few < files else counted(files, "file")
        return (
            f"nothing to compact: {small} ({average} on average) wait for more files in their partitions "
            "(--min-input-files); --dry-run --explain lists them"
        )
    return f"already compact ({counted(files, 'file')}, {average}{' on average' * (files > 1)})"


_EXPIRED_FILES = (
    "data_files",
    "position_delete_files",
    "equality_delete_files",
    "manifests",
    "manifest_lists",
    "statistics_files",
)


def _expire(outcome: Outcome) -> str:
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


def _expire_partitions(outcome: Outcome) -> str:
    dry = outcome.status is Status.DRY_RUN
    plan = Facts(outcome.result or outcome.plan)
    limit = readable_time(plan["older_than"])
    if not plan["data_files"]:
        return f"{'dry run: ' * dry}no partition is older than {limit}"
    known = "rows" in plan
    rows = ("" if known else "at most ") + counted(plan["rows" if known else "rows_at_most"], "row")
    files = f"{counted(plan['data_files'], 'file')} ({format_size(plan['bytes'])}, {rows})"
    what = f"{counted(plan['partitions'], 'partition')} older than {limit}: {files}"
    return f"dry run: would remove {what}{NOTHING_WRITTEN}" if dry else f"removed {what}"


def _delete(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if plan["earlier_run"]:
        return _deleted_before(Facts(plan["earlier_run"]))
    whole, partly = plan["data_files_removed"], plan["data_files_examined"]
    if outcome.status is Status.DRY_RUN:
        if not whole + partly:
            return "dry run: no row matches"
        rows = f"{'' if 'rows' in plan else 'up to '}{counted(plan['rows_at_most'], 'row')}"
        files = (
            f"{counted(whole + partly, 'file')}{f' ({partly:,} of them in part)' * bool(partly)}"
        )
        return f"dry run: would delete {rows} in {files}{_named_partitions(plan)}{NOTHING_WRITTEN}"
    if outcome.status is Status.NOTHING_TO_DO:
        return "no row matches; nothing was deleted"
    parts = [f"deleted {counted(result['rows'], 'row')}"]
    if result["data_files_removed"]:
        parts.append(f"removed {counted(result['data_files_removed'], 'file')}")
    if result["data_files_rewritten"]:
        parts.append(f"rewrote {counted(result['data_files_rewritten'], 'file')}")
    if result["delete_files"]:
        parts.append(f"wrote {counted(result['delete_files'], 'delete file')}")
    return ", ".join(parts)


def _named_partitions(plan: Facts) -> str:
    named = [item for item in plan["partitions"] or () if item["partition"]]
    return f" of {counted(len(named), 'partition')}" if named else ""


def _deleted_before(run: Facts) -> str:
    """Return when a run was committed, as far as it is known: its snapshot may have expired."""
    when = f" on {readable_time(run['committed_at'])}" if run["committed_at"] else ""
    snapshot = f" (snapshot {run['snapshot_id']})" if run["snapshot_id"] else " before"
    return f'run "{run["run_id"]}" was committed{when}{snapshot}; nothing to do'


def _manifests(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if outcome.status is Status.NOTHING_TO_DO or not plan["rewritten"]:
        dry = "dry run: " * (outcome.status is Status.DRY_RUN)
        if outcome.plan.get("is_due") is False:
            return f"{dry}a rewrite is not due: {_conditions(plan, holds=False)}"
        return f"{dry}{counted(plan['manifests'], 'manifest')}; nothing is worth rewriting"
    if outcome.status is Status.DRY_RUN:
        written = f"{counted(plan['rewritten'], 'manifest')} as {plan['rewritten_as']:,}"
        return f"dry run: would rewrite {written}{NOTHING_WRITTEN}{_due(plan)}"
    rewritten = counted(plan["rewritten"], "manifest")
    left = result["manifests"]
    now = "" if left is None else f"; the branch has {left:,} now"
    return f"rewrote {rewritten}{now}{_due(plan)}"


def _stats(outcome: Outcome) -> str:
    plan = Facts(outcome.plan)
    if "partitions" in plan:
        files = counted(plan["data_files"], "data file")
        found = f"{counted(plan['partitions'], 'partition')} with {files}"
        if outcome.status is Status.DRY_RUN:
            return f"dry run: would describe {found}{NOTHING_WRITTEN}"
        return f"described {found}"
    columns = counted(len(outcome.plan.get("columns") or ()), "column")
    if outcome.status is Status.NOTHING_TO_DO:
        if outcome.base_snapshot_id is None:
            return "the branch has no snapshot to describe"
        if outcome.plan.get("columns") == []:
            return "the table has no column whose values are counted"
        if not outcome.plan and not outcome.result:
            return "the snapshot has no partitions"
        return "the snapshot has these statistics already"
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would read {rows_or_less(plan, 'rows')} and describe {columns}{NOTHING_WRITTEN}"
    return f"described {columns} of {rows_or_less(plan, 'rows')}"


# Unreferenced files that every table may have: locks and metadata.
_OWN_FILES = frozenset({"lake", "metadata"})


_KEPT_FILES = {
    "checkpoint": "of checkpoints",
    "foreign": "with names of others",
    "gone": "gone",
    "no-time": "without a time",
    "other-table": "of other tables",
    "outside": "in other folders",
    "prefix-mismatch": "with another prefix",
}


def _clean(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if "restored" in result:
        return f"moved {counted(result['restored'], 'file')} back"
    if "purged" in result:
        return f"deleted {counted(result['purged'], 'file')} of {counted(result['runs'], 'run')}"
    kept = [item for item in (outcome.plan.get("kept") or {}).items() if item[0] not in _OWN_FILES]
    reasons = ", ".join(f"{number:,} {_KEPT_FILES.get(reason, reason)}" for reason, number in kept)
    rest = f"; kept {reasons}" if kept else ""
    if outcome.status is Status.NOTHING_TO_DO:
        return f"no orphan files among {counted(plan['listed'], 'file')}{rest}"
    if outcome.status is Status.DRY_RUN:
        files = f"{counted(plan['orphans'], 'orphan file')} ({format_size(plan['bytes'])})"
        if plan["requests"]:
            rest += f"; to remove them takes {counted(plan['requests'], 'request')}"
        return f"{files} among {counted(plan['listed'], 'file')}{rest}; nothing was changed"
    size, moved = format_size(result["bytes"]), result["quarantined"]
    failed = f"; {counted(result['failed'], 'file')} could not be removed" * bool(result["failed"])
    if moved:
        return f"moved {counted(moved, 'orphan file')} ({size}) away{rest}{failed}"
    return f"deleted {counted(result['deleted'], 'orphan file')} ({size}){rest}{failed}"


SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "clean": _clean,
    "compact": _compact,
    "delete": _delete,
    "expire": _expire,
    "expire-partitions": _expire_partitions,
    "manifests": _manifests,
    "stats": _stats,
}
