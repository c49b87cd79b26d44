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


def sentence(outcome: Outcome) -> str:
    """Return what a command did, without the table's name, the snapshot and the time it took."""
    if outcome.status is Status.ALREADY_RUNNING:
        return _already_running(_Facts(outcome.result.get("running") or {}))
    write = _SENTENCES.get(outcome.command)
    return write(outcome) if write else str(outcome.status).replace("-", " ")


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
    if outcome.status is Status.DRY_RUN and _would_change(outcome) and rest:
        return _line(options, command, *(text for text in rest if text != "--dry-run"))
    if outcome.status is Status.PARTIAL and rest:
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


def _line(options: Sequence[str], command: str, *arguments: str) -> str:
    return shlex.join(["lake", *options, command, *arguments])


def _would_change(outcome: Outcome) -> bool:
    """Whether a dry run found something to do."""
    plan = _Facts(outcome.plan)
    changes = {
        "compact": plan["groups"],
        "expire": plan["snapshots"] + plan["refs"],
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


def _ingest(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
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
        return f"dry run: would expire {snapshots}{refs} and delete {files} ({size}); nothing was changed"
    if outcome.status is Status.NOTHING_TO_DO:
        return nothing
    kept = sum((outcome.plan.get("kept_snapshots") or {}).values())
    if kept and counts["snapshots"]:
        snapshots = f"{counts['snapshots']:,} of {counted(counts['snapshots'] + kept, 'snapshot')}"
    deleted = sum(counts[name] for name in _EXPIRED_FILES)
    text = f"expired {snapshots}{refs}"
    text += f", deleted {files}, freed {size}" if deleted else ", deleted no files"
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
    if "rows" not in result:
        files = f"{counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
        deletes = f" and {counted(plan['delete_files'], 'delete file')}" * bool(
            plan["delete_files"]
        )
        skipped = f"; {plan['skipped_files']:,} skipped" * bool(plan["skipped_files"])
        records = counted(plan["records"], "row")
        return f"would read {files}{deletes} with {records} in {counted(plan['splits'], 'split')}{skipped}"
    if "preview" in result:
        return _previewed(outcome)
    rows = counted(result["rows"], "row")
    written = format_size(result["bytes_written"])
    return f"wrote {rows} to {counted(result['files'], 'file')} ({written})"


def _previewed(outcome: Outcome) -> str:
    """Return how many rows were shown, and of how many if metadata shows it."""
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    shown, total = result["rows"], plan["rows"]
    if "rows" in plan and total > shown:
        parts = [f"{shown:,} of {counted(total, 'row')}"]
    elif "rows" in plan or shown < _PREVIEW_ROWS or "rows_at_most" not in plan:
        parts = [counted(shown, "row")]
    else:
        parts = [f"{shown:,} of at most {counted(plan['rows_at_most'], 'row')}"]
    if outcome.details:
        parts.append(counted(len(outcome.details[0].columns), "column"))
    if shown >= _PREVIEW_ROWS and total != shown:
        parts.append("--limit N for more, --output FILE for all")
    return " · ".join(parts)


def _snapshots(outcome: Outcome) -> str:
    return counted(len(outcome.result.get("snapshots", ())), "snapshot")


def _replay(outcome: Outcome) -> str:
    plan, result = _Facts(outcome.plan), _Facts(outcome.result)
    if "jobs" in result:
        jobs = counted(len(result["jobs"]), "Flink job")
        return (
            f"{jobs} with commits or checkpoints" if result["jobs"] else "no Flink job wrote to it"
        )
    if "committed_checkpoints" in result and outcome.status is Status.NOTHING_TO_DO:
        return "nothing to commit"
    if "committed_checkpoints" in result:
        files = counted(result["data_files"], "data file")
        return f"committed {counted(result['committed_checkpoints'], 'checkpoint')} with {files}"
    pending = plan["pending"]
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would commit {counted(pending, 'checkpoint')}; nothing was changed"
    found = counted(len(plan["checkpoints"] or ()), "checkpoint")
    return f"{found}, {pending:,} pending" if plan["checkpoints"] else "no uncommitted checkpoint"


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


_SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "compact": _compact,
    "config": _config,
    "demo": _demo,
    "expire": _expire,
    "ingest": _ingest,
    "replay": _replay,
    "scan": _scan,
    "snapshots": _snapshots,
}
