"""The last line of a command for people: one sentence in the past tense that says what happened to which table.

Scripts read the JSON document. Zeros are left out, and words follow the count.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lake.core.outcome import Outcome, Status
from lake.core.units import format_duration, format_size, readable_time

_NOTHING_WRITTEN = "; nothing was written"
# A preview of this many rows ends before the table does.
_PREVIEW_ROWS = 20
_SHOWN_TAGS = 5


def sentence(outcome: Outcome, hidden: str = "") -> str:
    """Return what a command did, without the table's name, the snapshot and the time it took.

    Args:
        outcome: what was done.
        hidden: how many columns of the table that was printed were left out; empty if none were.
    """
    if outcome.status is Status.ALREADY_RUNNING:
        return _already_running(_Facts(outcome.result.get("running") or {}))
    if outcome.command == "scan" and "preview" in outcome.result:
        return _previewed(outcome, hidden)
    write = _SENTENCES.get(outcome.command)
    text = write(outcome) if write else str(outcome.status).replace("-", " ")
    return f"{text} · {hidden}" if hidden else text


def next_step(
    outcome: Outcome, options: Sequence[str] = (), rest: Sequence[str] = ()
) -> str | None:
    """Return the command that continues what was done; None if nothing is left to do.

    Args:
        outcome: what was done.
        options: the global options that were given.
        rest: the arguments of the command that were given.
    """
    result, command = outcome.result, outcome.command
    if command == "clean" and outcome.plan.get("mode") == "list":
        orphans = outcome.status is Status.DRY_RUN and outcome.plan.get("orphans") and rest
        return _line(options, command, *rest, "--quarantine") if orphans else None
    if outcome.status is Status.DRY_RUN and _would_change(outcome) and rest:
        given = [text for text in rest if text != "--dry-run"]
        needs_yes = (command == "drop" and outcome.plan.get("purge")) or command == "check"
        confirmed = needs_yes and "--yes" not in given
        return _line(options, command, *given, *(["--yes"] if confirmed else []))
    if command == "scan" and "pending_splits" in result:
        given = [text for text in rest if text != "--status"]
        return _line(options, command, *given) if _waits(result) and given else None
    if "route" in outcome.plan and not outcome.plan.get("run_id"):
        # A repetition would load the rows of the other tables again.
        return None
    if command == "check" and rest:
        return _after_check(outcome, options)
    if outcome.status is Status.PARTIAL and rest and command not in {"tables", "drop"}:
        return _line(options, command, *rest)
    if command == "ingest" and outcome.status is Status.DONE and "checkpoint_id" in result:
        if "removed_files" in result:
            return None
        job, number = str(result["job_id"]), str(result["checkpoint_id"])
        return _line(options, "replay", outcome.table, "--job", job, "--completed", number)
    if command == "demo" and outcome.status is Status.DONE:
        folder = os.path.relpath(str(result.get("folder", "")))
        return _line(["--warehouse", folder], "snapshots", outcome.table)
    return None


def _after_check(outcome: Outcome, options: Sequence[str]) -> str | None:
    """Return the repairs that mend some of what a check found, or the check that shows what a repair left."""
    repairs = outcome.result.get("repairs")
    if repairs is not None:
        with_files = any(item["repair"] == "missing-files" for item in repairs)
        return _line(options, "check", outcome.table, *(["--files"] if with_files else []))
    found = outcome.result.get("findings", ())
    names = dict.fromkeys(item["repair"] for item in found if item.get("repair"))
    chosen = [text for name in names for text in ("--repair", name)]
    return _line(options, "check", outcome.table, *chosen) if chosen else None


def _waits(result: Mapping[str, Any]) -> bool:
    """Whether a follow ended although it knows of rows that it has not handed over."""
    lag = result.get("lag") or {}
    return bool(result["pending_splits"] or lag.get("snapshots"))


def _line(options: Sequence[str], command: str, *arguments: str) -> str:
    return shlex.join(["lake", *options, command, *arguments])


def _would_change(outcome: Outcome) -> bool:
    """Whether a dry run found something to do."""
    plan = _Facts(outcome.plan)
    changes = {
        "clean": plan["orphans"],
        "compact": plan["groups"],
        "deletes": plan["equality_deletes"] + plan["position_deletes"] + plan["remaining_files"],
        "expire": plan["snapshots"] + plan["refs"],
        "expire-partitions": plan["data_files"],
        "manifests": plan["rewritten"],
        "replay": plan["pending"],
    }
    return bool(changes.get(outcome.command, 1))


class _Facts(dict[str, Any]):
    """The plan or result of an outcome, in which an unknown count is 0: a missing key must not fail a command."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__({key: value for key, value in values.items() if value is not None})

    def __missing__(self, key: str) -> int:
        return 0


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,000 rows``."""
    return f"{number:,} {noun + 's' * (number != 1)}"


def _listed(number: int, noun: str) -> str:
    """Return how many rows a listing has."""
    return counted(number, noun) if number else f"no {noun}s"


def _ingest(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if "stream" in plan:
        return _stream(outcome.status, plan, result)
    if "route" in plan:
        return _routed(outcome.status, plan, result)
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would {_planned_load(plan)}{_NOTHING_WRITTEN}"
    if "removed_files" in result and "run_id" in result:
        files = counted(result["removed_files"], "file")
        return f'discarded run "{result["run_id"]}" and deleted {files}'
    if plan["loaded_run"]:
        return _loaded_before(_Facts(plan["loaded_run"]))
    if outcome.status is Status.NOTHING_TO_DO:
        return "nothing to load"
    if "run_id" in result:
        return (
            f'staged {_rows_in_files(result)} as run "{result["run_id"]}"; the table is unchanged'
        )
    text = _loaded(plan, result)
    if result["rows_rejected"]:
        text += f", rejected {counted(result['rows_rejected'], 'row')}"
    return f"created the table and {text}" if plan["creates_table"] else text


def _routed(status: Status, plan: _Facts, result: _Facts) -> str:
    """Return what a load into many tables did; the table above names each."""
    facts = plan if status is Status.DRY_RUN else result
    tables = facts["tables"] or []
    failed = sum(item["error"] is not None for item in tables)
    loaded = [item for item in tables if item["rows"]]
    text = f"{counted(facts['rows_written'], 'row')} into {counted(len(loaded), 'table')}"
    created = sum(bool(item["created"]) for item in loaded)
    if created:
        text += f" ({created:,} new)"
    ending = f"; {counted(failed, 'table')} failed" if failed else ""
    if status is Status.DRY_RUN:
        return f"dry run: would load {text}{ending}{_NOTHING_WRITTEN}"
    if facts["rows_rejected"]:
        ending = f", rejected {counted(facts['rows_rejected'], 'row')}{ending}"
    if loaded:
        return f"loaded {text}{ending}"
    return f"nothing loaded{ending}" if failed else f"nothing to load{ending}"


def _stream(status: Status, plan: _Facts, result: _Facts) -> str:
    if "topic" in plan:
        return _topic(status, plan, result)
    if status is Status.DRY_RUN:
        files = f"{counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
        return f"dry run: would load {files}{_NOTHING_WRITTEN}"
    parts = []
    if result["epochs"]:
        rows = counted(result["rows_written"], "row")
        files = counted(result["files_loaded"], "file")
        parts.append(f"loaded {rows} of {files} in {counted(result['epochs'], 'epoch')}")
    if result["files_set_aside"]:
        parts.append(f"set {counted(result['files_set_aside'], 'bad file')} aside")
    if result["compactions"]:
        parts.append(f"compacted {counted(result['compactions'], 'time')}")
    text = ", ".join(parts) or "nothing to load"
    waiting = result["lag_files"]
    return f"{text}; {counted(waiting, 'file')} left for later" if waiting else text


def _topic(status: Status, plan: _Facts, result: _Facts) -> str:
    topic = f"of topic {plan['topic']}"
    if status is Status.DRY_RUN:
        number = plan["messages"]
        found = f"up to {counted(number, 'message')}" if number else "no message"
        return f"dry run: would load {found} {topic}{_NOTHING_WRITTEN}"
    parts = []
    if result["epochs"]:
        messages, epochs = (
            counted(result["messages"], "message"),
            counted(result["epochs"], "epoch"),
        )
        parts.append(f"loaded {messages} {topic} in {epochs}")
    if result["gaps"]:
        parts.append(f"skipped {counted(len(result['gaps']), 'gap')}")
    if result["messages_set_aside"]:
        parts.append(f"set {counted(result['messages_set_aside'], 'bad message')} aside")
    if result["compactions"]:
        parts.append(f"compacted {counted(result['compactions'], 'time')}")
    text = ", ".join(parts) or f"no new message {topic}"
    waiting = result["lag_messages"]
    return f"{text}; {counted(waiting, 'message')} left for later" if waiting else text


def _loaded_before(run: _Facts) -> str:
    """Return when a run was loaded, as far as it is known: its snapshot may have expired."""
    when = f" on {readable_time(run['committed_at'])}" if run["committed_at"] else ""
    snapshot = f" (snapshot {run['snapshot_id']})" if run["snapshot_id"] else " before"
    return f'run "{run["run_id"]}" was loaded{when}{snapshot}; nothing to do'


def _already_running(running: _Facts) -> str:
    if not running:
        return "already running: another command of lake works on this table"
    return (
        f"already running: lake {running['command']} on {running['host']} "
        f"(process {running['pid']}) since {running['since']}; nothing to do"
    )


def _planned_load(plan: _Facts) -> str:
    kind = f"{str(plan['format']).upper()} " if plan["format"] else ""
    source = f"{counted(plan['files'], kind + 'file')} ({format_size(plan['bytes'])})"
    if plan["creates_table"]:
        columns = counted(len(plan["schema"]), "column")
        spec = ", ".join(
            re.sub(r"^identity\((.*)\) as \1$", r"\1", x) for x in plan["partition_spec"]
        )
        return f"create the table ({columns}, {_partitioned(spec)}) and load {source}"
    if plan["changes_column"]:
        return f"apply the changes in {source} by {', '.join(plan['key'])}"
    if plan["key"]:
        text = f"update or insert the rows of {source} by {', '.join(plan['key'])}"
        return f"{text}; {_rows_that_may_match(plan)}" if plan["updated_rows_at_most"] else text
    if plan["mode"] == "append":
        return f"load {source}"
    if "removed_rows_at_most" not in plan:
        return (
            f"load {source} and replace the partitions that receive rows "
            "(the source is too large to read for a dry run)"
        )
    if not plan["removed_files"] + plan["rewritten_files"]:
        return f"load {source} and remove no rows"
    return f"remove {_removed_rows(plan)}{_removed_from(plan)} and load {source}"


def _rows_that_may_match(plan: _Facts) -> str:
    """Return the limits of what a load by key changes: only its run compares the keys."""
    text = f"up to {counted(plan['updated_rows_at_most'], 'row')}"
    if files := plan["examined_files"]:
        text += f" in {counted(files, 'file')}"
        partitions = [name for name in plan["examined_partitions"] or () if name]
        text += f" of {counted(len(partitions), 'partition')}" if partitions else ""
    return f"{text} may have the same keys (a dry run does not compare them)"


def _removed_rows(facts: _Facts) -> str:
    """Return how many rows an overwrite removes; ``up to`` if metadata does not show the number."""
    if "removed_rows" in facts:
        return counted(facts["removed_rows"], "row")
    return f"up to {counted(facts['removed_rows_at_most'], 'row')}"


def _removed_from(plan: _Facts) -> str:
    """Return the files and partitions that lose rows."""
    whole, partly = plan["removed_files"], plan["rewritten_files"]
    text = f" in {counted(whole + partly, 'file')}"
    named = [item for item in plan["removed_partitions"] or () if item["partition"]]
    if named:
        text += f" of {counted(len(named), 'partition')}"
    return f"{text} ({partly:,} of them in part)" if partly else text


def _partitioned(spec: str) -> str:
    return f"partitioned by {spec}" if spec else "not partitioned"


def _loaded(plan: _Facts, result: _Facts) -> str:
    if plan["changes_column"]:
        changes = counted(result["rows_read"], "change")
        if "rows_deleted" in result:
            counts = {name: result[f"rows_{name}"] for name in ("updated", "inserted", "deleted")}
            done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
            return f"applied {changes}: {done or 'nothing changed'}"
        return f"applied {changes} in {_files(result)}"
    if plan["key"]:
        return f"{_changed_rows(result)} ({result['rows_read']:,} read)"
    if plan.get("mode") in {None, "append"}:
        return f"loaded {_rows_in_files(result)}"
    if not result["removed_files"] + result["rewritten_files"]:
        return f"loaded {_rows_in_files(result)}; no row was replaced"
    text = f"replaced {_removed_rows(result)} by {result['rows_written']:,}"
    if result["rewritten_files"]:
        return f"{text}, rewrote {counted(result['rewritten_files'], 'file')}"
    return f"{text} in {_files(result)}"


def _changed_rows(result: _Facts) -> str:
    """Return how many rows a load by key updated and inserted; ``row`` is written once."""
    updated, inserted = result["rows_updated"], result["rows_inserted"]
    if "rows_updated" not in result:
        return f"wrote {counted(result['rows_written'], 'row')} by key"
    if updated and inserted:
        return f"{counted(updated, 'row')} updated, {inserted:,} inserted"
    done = "updated" if updated else "inserted"
    return (
        f"{counted(updated + inserted, 'row')} {done}" if updated + inserted else "no row changed"
    )


def _rows_in_files(result: _Facts) -> str:
    return f"{counted(result['rows_written'], 'row')} in {_files(result)}"


def _files(result: _Facts) -> str:
    files = counted(result["data_files"], "file")
    if result["delete_files"]:
        files += f" and {counted(result['delete_files'], 'delete file')}"
    return f"{files} ({format_size(result['bytes_written'])})"


def _compact(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if outcome.status is Status.DRY_RUN and not plan["groups"]:
        return f"dry run: {_already_compact(plan)}"
    if outcome.status is Status.DRY_RUN:
        files = f"{counted(plan['input_files'], 'file')} ({format_size(plan['input_bytes'])})"
        groups = counted(plan["groups"], "group")
        outputs = counted(plan["expected_output_files"], "file")
        return f"dry run: would rewrite {files} in {groups} into about {outputs}{_NOTHING_WRITTEN}"
    if outcome.status is Status.NOTHING_TO_DO:
        if plan["triggers"] and "groups" not in plan:
            return _not_due(plan)
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
    return text


def _not_due(plan: _Facts) -> str:
    """Return the counts that are below their limits, in the units of their names."""
    units: dict[str, Callable[[int], str]] = {
        "age": lambda milliseconds: format_duration(milliseconds / 1000),
        "bytes": format_size,
    }
    counts = [
        f"{name} {units.get(name, '{:,}'.format)(value)} of {units.get(name, '{:,}'.format)(limit)}"
        for name, (value, limit) in plan["triggers"].items()
    ]
    return f"compaction is not due: {', '.join(counts)} since the last one"


def _already_compact(plan: _Facts) -> str:
    files = plan["total_data_files"]
    busy = plan["busy_partitions"]
    if busy:
        return f"nothing to compact: {counted(busy, 'partition')} changed too recently"
    if not files:
        return "nothing to compact"
    average = format_size(plan["total_files_size"] // files)
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
    counts = _Facts(outcome.plan if outcome.status is Status.DRY_RUN else outcome.result)
    files = counted(sum(counts[name] for name in _EXPIRED_FILES), "file")
    snapshots = counted(counts["snapshots"], "snapshot")
    size = format_size(counts["bytes"])
    refs = f" and {counted(counts['refs'], 'ref')}" if counts["refs"] else ""
    nothing = "; ".join(["nothing to expire", *_kept(_Facts(outcome.plan))])
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


def _kept(plan: _Facts) -> list[str]:
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


def _scan(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if "epochs" in result:
        return _followed(plan, result)
    if "strategy" in outcome.plan and outcome.status is Status.NOTHING_TO_DO:
        return "nothing new"
    if "rows" not in result:
        files = f"{counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
        deletes = f" and {counted(plan['delete_files'], 'delete file')}" * bool(
            plan["delete_files"]
        )
        skipped = f"; {plan['skipped_files']:,} skipped" * bool(plan["skipped_files"])
        records = counted(plan["records"], "row")
        return f"would read {files}{deletes} with {records} in {counted(plan['splits'], 'split')}{skipped}"
    rows = counted(result["rows"], "row")
    written = format_size(result["bytes_written"])
    return f"wrote {rows} to {counted(result['files'], 'file')} ({written})"


def _followed(plan: _Facts, result: _Facts) -> str:
    """Return what a follow handed over, in this run or in all, and where it is."""
    rows = counted(result["rows"], "row")
    epochs = counted(result["epochs"], "epoch")
    if not result["rows"]:
        text = "nothing new"
        if plan["snapshots"]:
            text += f" in {counted(plan['snapshots'], 'snapshot')}"
    elif result["files"]:
        files = f"{counted(result['files'], 'file')}, {format_size(result['bytes_written'])}"
        text = f"handed over {rows} in {epochs} ({files})"
    else:
        text = f"handed over {rows} in {epochs}"
    if result["gaps"]:
        gaps = result["gaps"]
        text += f"; {counted(gaps if isinstance(gaps, int) else len(gaps), 'gap')} in the history"
    if result["pending_splits"]:
        text += f"; {counted(result['pending_splits'], 'split')} pending"
    return f"{text} · {_place(result)}"


def _place(result: _Facts) -> str:
    """Return the position of a follow and what is after it."""
    position, lag = result["position"], result["lag"]
    if not position:
        return "no snapshot was discovered"
    snapshot = position["snapshot_id"]
    text = f"at snapshot {snapshot[:8]}" if snapshot else "before the first snapshot"
    if lag and lag["snapshots"]:
        text += f", {counted(lag['snapshots'], 'snapshot')} behind"
        text += f" ({counted(lag['rows'], 'row')})" if lag["rows"] else ""
    return text


def _previewed(outcome: Outcome, hidden: str) -> str:
    """Return how many rows and columns were shown, and of how many if metadata shows it."""
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    shown, total = result["rows"], plan["rows"]
    if "rows" in plan and total > shown:
        parts = [f"{shown:,} of {counted(total, 'row')}"]
    elif "rows" in plan or shown < _PREVIEW_ROWS or "rows_at_most" not in plan:
        parts = [counted(shown, "row")]
    else:
        parts = [f"{shown:,} of at most {counted(plan['rows_at_most'], 'row')}"]
    if outcome.details:
        parts.append(hidden or counted(len(outcome.details[0].columns), "column"))
    if shown >= _PREVIEW_ROWS and total != shown:
        parts.append("--limit N for more, --output FILE for all")
    return " · ".join(parts)


def _expire_partitions(outcome: Outcome) -> str:
    dry = outcome.status is Status.DRY_RUN
    plan = _Facts(outcome.result or outcome.plan)
    limit = readable_time(plan["older_than"])
    if not plan["data_files"]:
        return f"{'dry run: ' * dry}no partition is older than {limit}"
    known = "rows" in plan
    rows = ("" if known else "at most ") + counted(plan["rows" if known else "rows_at_most"], "row")
    files = f"{counted(plan['data_files'], 'file')} ({format_size(plan['bytes'])}, {rows})"
    what = f"{counted(plan['partitions'], 'partition')} older than {limit}: {files}"
    return f"dry run: would remove {what}{_NOTHING_WRITTEN}" if dry else f"removed {what}"


def _manifests(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if outcome.status is Status.NOTHING_TO_DO or not plan["rewritten"]:
        dry = "dry run: " * (outcome.status is Status.DRY_RUN)
        if outcome.plan.get("is_due") is False:
            values = [
                f"{name} {'not measured' if value is None else format(value, ',')} of {limit:,}"
                for name, (value, limit) in plan["triggers"].items()
            ]
            return f"{dry}a rewrite is not due: {', '.join(values)}"
        return f"{dry}{counted(plan['manifests'], 'manifest')}; nothing is worth rewriting"
    if outcome.status is Status.DRY_RUN:
        written = f"{counted(plan['rewritten'], 'manifest')} as {plan['rewritten_as']:,}"
        return f"dry run: would rewrite {written}{_NOTHING_WRITTEN}"
    return f"rewrote {counted(plan['rewritten'], 'manifest')}; the branch has {result['manifests']:,} now"


def _stats(outcome: Outcome) -> str:
    plan = _Facts(outcome.plan)
    if "partitions" in plan:
        files = counted(plan["data_files"], "data file")
        found = f"{counted(plan['partitions'], 'partition')} with {files}"
        if outcome.status is Status.DRY_RUN:
            return f"dry run: would describe {found}{_NOTHING_WRITTEN}"
        return f"described {found}"
    columns = counted(len(outcome.plan.get("columns") or ()), "column")
    if outcome.status is Status.NOTHING_TO_DO:
        return "the snapshot has these statistics, or no rows to describe"
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would read {_rows_or_less(plan, 'rows')} and describe {columns}{_NOTHING_WRITTEN}"
    return f"described {columns} of {_rows_or_less(plan, 'rows')}"


def _rows_or_less(facts: _Facts, name: str) -> str:
    """Return an exact number of rows, or the most that there can be; empty if neither is known."""
    if name in facts:
        return counted(facts[name], "row")
    most = f"{name}_at_most"
    return f"{counted(facts[most], 'row')} or less" if most in facts else ""


def _rollback(outcome: Outcome) -> str:
    plan = _Facts(outcome.plan)
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch is at this snapshot"
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would set' if dry else 'set'} the branch to snapshot {plan['to_snapshot']}"
    before, after = (_rows_or_less(plan, name) for name in ("rows_before", "rows_after"))
    if before and after:
        text += f" ({before.removesuffix(' rows').removesuffix(' row')} → {after})"
    hidden = plan["hidden_snapshots"] or ()
    if hidden:
        text += f"; {counted(len(hidden), 'snapshot')} {'goes' if len(hidden) == 1 else 'go'} out of sight"
    return f"dry run: {text}{_NOTHING_WRITTEN}" if dry else text


def _alter(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is so already; nothing to do"
    plan, dry = outcome.plan, outcome.status is Status.DRY_RUN
    verbs = {
        "added_columns": ("add", "added"),
        "renamed_columns": ("rename", "renamed"),
        "dropped_columns": ("drop", "dropped"),
        "widened_columns": ("widen", "widened"),
    }
    parts = [
        f"{would if dry else did} {counted(len(plan[key]), 'column')}"
        for key, (would, did) in verbs.items()
        if plan[key]
    ]
    for key, verb in (("partition_by", "partitioned"), ("sort_by", "sorted")):
        if plan[key] is not None:
            terms = ", ".join(plan[key])
            parts.append(_arranged(verb, terms, dry=dry))
    if changed := len(plan["set"]) + len(plan["unset"]):
        properties = f"{changed:,} propert{'y' if changed == 1 else 'ies'}"
        parts.append(f"{'change' if dry else 'changed'} {properties}")
    if plan["format_version"]:
        verb = "upgrade" if dry else "upgraded"
        parts.append(f"{verb} the table to format version {plan['format_version']}")
    return f"{'dry run: would ' * dry}{', '.join(parts)}{_NOTHING_WRITTEN * dry}"


def _arranged(verb: str, terms: str, *, dry: bool) -> str:
    """Return how new files are partitioned or sorted after a change."""
    by = f"{verb} by {terms}" if terms else f"not {verb}"
    return f"write new files {by}" if dry else f"new files are {by}"


def _create(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table exists already; nothing to do"
    plan = outcome.plan
    dry = outcome.status is Status.DRY_RUN
    by = ", ".join(plan["partition_by"])
    parts = [
        counted(len(plan["columns"]), "column"),
        f"partitioned by {by}" if by else "not partitioned",
        f"format version {plan['format_version']}",
    ]
    text = f"{'would create' if dry else 'created'} the table ({', '.join(parts)})"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _ref(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the branch or tag is so already; nothing to do"
    plan = _Facts(outcome.plan)
    if not plan["ref"]:
        return _listed(len(outcome.result.get("refs", ())), "ref")
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
        text += f"; {counted(hidden, 'snapshot')} {'goes' if hidden == 1 else 'go'} out of sight"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _rename(outcome: Outcome) -> str:
    plan, dry = _Facts(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would rename' if dry else 'renamed'} the table to {plan['to']}"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _register(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is registered already; nothing to do"
    plan, dry = _Facts(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would register' if dry else 'registered'} the table at {plan['location']}"
    if rows := _rows_or_less(plan, "rows"):
        text += f" with {rows}"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _drop(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would drop' if dry else 'dropped'} the table"
    if not plan["purge"]:
        text += f"; its metadata file stays: {plan['metadata_location']}"
    elif dry:
        text += f" and delete {counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
    else:
        text += f" and deleted {counted(result['deleted_files'], 'file')}"
    if result["failed_deletes"]:
        text += f"; {counted(result['failed_deletes'], 'file')} could not be deleted"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _add_files(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "nothing to do: the branch contains this run already"
    plan = _Facts(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    files, rows = counted(plan["added_files"], "file"), counted(plan["added_rows"], "row")
    text = f"{'would add' if dry else 'added'} {files} with {rows} to {outcome.table}"
    if plan["sets_name_mapping"]:
        text += ", and set the table's name mapping"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _pick(outcome: Outcome) -> str:
    plan = _Facts(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    source = f"snapshot {plan['source_snapshot']}"
    branch = f"branch {outcome.branch}" if outcome.branch else "the branch"
    if plan["wap_id"] and outcome.command == "publish":
        source += f" (WAP id {plan['wap_id']})"
    if plan["fast_forward"]:
        verb = "would move" if dry else "moved"
        return f"{'dry run: ' * dry}{verb} {branch} to {source}{_NOTHING_WRITTEN * dry}"
    verb, rows = "would apply" if dry else "applied", counted(plan["added_rows"], "row")
    files = f"{counted(plan['added_files'], 'file')} with {rows} added"
    if plan["removed_files"]:
        files += f", {counted(plan['removed_files'], 'file')} replaced"
    text = f"{verb} {source} to {branch}: {files}"
    return f"{'dry run: ' * dry}{text}{_NOTHING_WRITTEN * dry}"


def _tag(outcome: Outcome) -> str:
    created, removed = (outcome.plan.get(key) or () for key in ("created", "removed"))
    if outcome.status is Status.NOTHING_TO_DO:
        return "no tag is missing"
    if not created and not removed:
        return _listed(len(outcome.result.get("tags", ())), "tag")
    verbs = ("would set", "drop") if outcome.status is Status.DRY_RUN else ("set", "dropped")
    parts = [
        f"{verb} tag{'s' * (len(names) > 1)} {', '.join(names[:_SHOWN_TAGS])}"
        + (f" and {len(names) - _SHOWN_TAGS} more" if len(names) > _SHOWN_TAGS else "")
        for verb, names in zip(verbs, (created, removed), strict=True)
        if names
    ]
    dry = outcome.status is Status.DRY_RUN
    return f"{'dry run: ' * dry}{', '.join(parts)}{_NOTHING_WRITTEN * dry}"


def _partitions(outcome: Outcome) -> str:
    rows = outcome.result.get("partitions", ())
    text = _listed(len(rows), "partition")
    if any(row["idle"] is None for row in rows):
        return text
    idle = sum(row["idle"] is True for row in rows)
    return f"{text}, {f'{idle:,}' if idle else 'none'} idle" if rows else text


def _check(outcome: Outcome) -> str:
    result = outcome.result
    if outcome.plan:
        return _repair(outcome)
    read = counted(result["manifests"], "manifest")
    kinds = (("errors", "error"), ("warnings", "warning"), ("notes", "note"))
    found = [counted(result[key], noun) for key, noun in kinds if result[key]]
    if not found:
        return f"read {read}, found nothing wrong"
    return f"read {read}, found {' and '.join(found)}"


def _repair(outcome: Outcome) -> str:
    repairs = outcome.plan.get("repairs") or ()
    if outcome.status is Status.NOTHING_TO_DO:
        return f"nothing to repair ({', '.join(item['repair'] for item in repairs)})"
    dry = outcome.status is Status.DRY_RUN
    parts = [_mended(_Facts(item), dry=dry) for item in repairs]
    text = ", ".join(part for part in parts if part)
    return f"dry run: would {text}; nothing was changed" if dry else text


def _mended(item: _Facts, *, dry: bool) -> str:
    """Return what one repair does; empty if there is nothing to mend."""
    drop, correct = ("drop", "correct") if dry else ("dropped", "corrected")
    files, deletes = item["data_files"], item["delete_files"]
    entries = len(item["files"] or ())
    texts = {
        "duplicate-files": files and f"{drop} the second entries of {counted(files, 'data file')}",
        "missing-files": (files or deletes) and f"{drop} {_gone(item)}",
        "dangling-deletes": deletes and f"{drop} {counted(deletes, 'dangling delete file')}",
        "totals": item["totals"] and f"{correct} {counted(len(item['totals']), 'total')}",
        "refs": item["refs"] and f"{drop} {counted(len(item['refs']), 'ref')}",
        "statistics": entries and f"{drop} the entries of {counted(entries, 'statistics file')}",
    }
    return texts.get(item["repair"]) or ""


def _gone(item: _Facts) -> str:
    """Return the files that a repair drops, and the rows that are lost with them."""
    files, deletes = item["data_files"], item["delete_files"]
    parts = [counted(files, "missing data file")] if files else []
    parts += [counted(deletes, "delete file")] if deletes else []
    rows = f"{counted(item['rows_at_most'], 'row')}" if files else ""
    at_most = "at most " if files and item["rows"] != item["rows_at_most"] else ""
    return " and ".join(parts) + (f" with {at_most}{rows}" if rows else "")


def _deletes(outcome: Outcome) -> str:
    if outcome.plan:
        is_conversion = "equality_deletes" in outcome.plan
        return _conversion(outcome) if is_conversion else _deletes_rewrite(outcome)
    rows = outcome.result.get("delete_files", ())
    dangling = sum(row["dangling"] is True for row in rows)
    text = _listed(len(rows), "delete file")
    return f"{text}, {f'{dangling:,}' if dangling else 'none'} dangling" if rows else text


def _conversion(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    nothing = not (plan["equality_deletes"] or plan["remaining_files"])
    if nothing or outcome.status is Status.NOTHING_TO_DO:
        return "the branch has no equality delete files"
    noun = "equality delete file"
    read = counted(plan["data_files"], "data file")
    if outcome.status is Status.DRY_RUN:
        files = counted(plan["equality_deletes"], noun)
        if not plan["remaining_files"]:
            return f"dry run: would convert {files} that may apply to {read}{_NOTHING_WRITTEN}"
        rest = f"{plan['remaining_files']:,} remain"
        return f"dry run: would read {read} and convert {files}; {rest}{_NOTHING_WRITTEN}"
    files = counted(result["removed_equality_deletes"], noun)
    rows = counted(result["deleted_rows"], "row")
    text = f"converted {files}: {rows} of {counted(result['changed_data_files'], 'data file')} deleted by position"
    return text + _remaining(result, noun)


def _deletes_rewrite(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if not plan["position_deletes"] or outcome.status is Status.NOTHING_TO_DO:
        return "no position delete file can be replaced"
    noun = "position delete file"
    dangling = f" ({plan['dangling']:,} dangling)" * bool(plan["dangling"])
    if outcome.status is Status.DRY_RUN:
        files = counted(plan["position_deletes"], noun)
        of = counted(plan["data_files"], "data file")
        rest = f"; {plan['remaining_files']:,} remain" * bool(plan["remaining_files"])
        return f"dry run: would replace {files}{dangling} of {of}{rest}{_NOTHING_WRITTEN}"
    files = counted(result["removed_position_deletes"], noun)
    if not result["added_deletes"]:
        return f"removed {files} that deleted nothing{_remaining(result, noun)}"
    added = counted(
        result["added_deletes"], "deletion vector" if plan["kind"] == "vector" else "file"
    )
    dropped = result["dropped_rows"]
    text = f"replaced {files}{dangling} by {added}, {counted(result['deleted_rows'], 'row')} stay deleted"
    text += f", {counted(dropped, 'record')} dropped" * bool(dropped)
    return text + _remaining(result, noun)


def _remaining(result: _Facts, noun: str) -> str:
    rest = result["remaining_deletes"]
    return f"; {counted(rest, noun)} {'remains' if rest == 1 else 'remain'}" if rest else ""


def _tables(outcome: Outcome) -> str:
    rows, views = outcome.result.get("tables", ()), outcome.result.get("views", ())
    failed = sum(row["error"] is not None for row in rows)
    text = _listed(sum(row["table"] is not None for row in rows), "table")
    if views:
        text += f", {counted(len(views), 'view')}"
    return f"{text}; {failed:,} could not be read" if failed else text


def _show(outcome: Outcome) -> str:
    schema, version = outcome.result["schema"], outcome.result["format_version"]
    columns = counted(len(schema["fields"]), "column")
    return (
        f"{columns}, {counted(outcome.result['snapshots'], 'snapshot')}, format version {version}"
    )


def _inspect(outcome: Outcome) -> str:
    rows = _Facts(outcome.result)["rows"]
    found = outcome.plan.get("rows_found")
    if "preview" in outcome.result:
        if found is None:
            return counted(rows, "row")
        return counted(found, "row") if rows == found else f"{rows:,} of {counted(found, 'row')}"
    return f"wrote {counted(rows, 'row')}"


def _snapshots(outcome: Outcome) -> str:
    return _listed(len(outcome.result.get("snapshots", ())), "snapshot")


def _consumers(outcome: Outcome) -> str:
    result = _Facts(outcome.result)
    name = _Facts(outcome.plan)["dropped"]
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would remove consumer {name}; nothing was changed"
    if result["dropped"]:
        return f"removed consumer {name}: expiry does not wait for its reader any more"
    return _listed(len(result["consumers"] or ()), "consumer")


def _replay(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if "jobs" in result:
        jobs = counted(len(result["jobs"]), "Flink job")
        return (
            f"{jobs} with commits or checkpoints" if result["jobs"] else "no Flink job wrote to it"
        )
    if "committed_runs" in result:
        return _all_staged(result)
    if "committed_checkpoints" in result:
        text = "nothing to commit"
        if outcome.snapshot_ids:
            files = counted(result["data_files"], "data file")
            text = (
                f"committed {counted(result['committed_checkpoints'], 'checkpoint')} with {files}"
            )
        names = ", ".join(tag["name"] for tag in result["tags"] or ())
        return f"{text}; tagged as {names}" if names else text
    pending = plan["pending"]
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would commit {counted(pending, 'checkpoint')}; nothing was changed"
    found = counted(len(plan["checkpoints"] or ()), "checkpoint")
    return f"{found}, {pending:,} pending" if plan["checkpoints"] else "no uncommitted checkpoint"


def _all_staged(result: _Facts) -> str:
    text = "nothing to commit"
    if runs := len(result["committed_runs"]):
        text = f"committed {counted(runs, 'staged run')} with {counted(result['data_files'], 'data file')}"
    left = len(result["left_runs"])
    return f"{text}; {counted(left, 'run')} left" if left else text


def _demo(outcome: Outcome) -> str:
    result = _Facts(outcome.result)
    rows, commits = counted(result["rows"], "row"), counted(result["commits"], "commit")
    return f"the tour loaded {rows} in {commits}; the table is in {result['folder']}"


def _config(outcome: Outcome) -> str:
    result = outcome.result
    file = result.get("pyiceberg_file")
    read = f"PyIceberg's configuration is {file}" if file else "there is no .pyiceberg.yaml"
    name = result.get("catalog")
    return f"uses catalog {name}; {read}" if name else f"no catalog is chosen; {read}"


# Unreferenced files that every table may have: locks and metadata.
_OWN_FILES = frozenset({"lake", "metadata"})
_KEPT_FILES = {
    "checkpoint": "of checkpoints",
    "gone": "gone",
    "no-time": "without a time",
    "other-table": "of other tables",
    "outside": "in other folders",
    "prefix-mismatch": "with another prefix",
}


def _clean(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
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


_SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "add-files": _add_files,
    "alter": _alter,
    "check": _check,
    "cherry-pick": _pick,
    "clean": _clean,
    "compact": _compact,
    "config": _config,
    "create": _create,
    "deletes": _deletes,
    "demo": _demo,
    "drop": _drop,
    "expire": _expire,
    "expire-partitions": _expire_partitions,
    "ingest": _ingest,
    "manifests": _manifests,
    "stats": _stats,
    "partitions": _partitions,
    "publish": _pick,
    "ref": _ref,
    "register": _register,
    "rename": _rename,
    "replay": _replay,
    "rollback": _rollback,
    "scan": _scan,
    "show": _show,
    "inspect": _inspect,
    "snapshots": _snapshots,
    "tables": _tables,
    "tag": _tag,
    "consumers": _consumers,
}
