"""What `lake ingest` did, as one sentence."""

from __future__ import annotations

import re

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import NOTHING_WRITTEN, Facts, counted, place
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_size, readable_time

# More columns than this are counted in a sentence.
_MOST_NAMED = 3


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if "stream" in plan:
        return _stream(outcome.status, plan, result)
    if "route" in plan:
        return _routed(outcome.status, plan, result)
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would {_planned_load(plan)}{NOTHING_WRITTEN}"
    if "removed_files" in result and "run_id" in result:
        files = counted(result["removed_files"], "file")
        return f'discarded run "{result["run_id"]}" and deleted {files}'
    if plan["loaded_run"]:
        return _loaded_before(Facts(plan["loaded_run"]))
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


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that goes on with a load, or that commits a staged one."""
    result = outcome.result
    if "route" in outcome.plan and not outcome.plan.get("run_id"):
        # A repetition would load the rows of the other tables again.
        return None
    if outcome.status is Status.PARTIAL and line.rest:
        return line.again("ingest")
    if (
        outcome.status is Status.DONE
        and "checkpoint_id" in result
        and "removed_files" not in result
    ):
        job, number = str(result["job_id"]), str(result["checkpoint_id"])
        return line.of("replay", outcome.table, "--job", job, "--completed", number)
    return None


def _routed(status: Status, plan: Facts, result: Facts) -> str:
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
        return f"dry run: would load {text}{ending}{NOTHING_WRITTEN}"
    if facts["rows_rejected"]:
        ending = f", rejected {counted(facts['rows_rejected'], 'row')}{ending}"
    if loaded:
        return f"loaded {text}{ending}"
    return f"nothing loaded{ending}" if failed else f"nothing to load{ending}"


def _stream(status: Status, plan: Facts, result: Facts) -> str:
    if "topic" in plan:
        return _topic(status, plan, result)
    if status is Status.DRY_RUN:
        files = f"{counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
        return f"dry run: would load {files}{NOTHING_WRITTEN}"
    if "files_total" in result:
        return _watch_status(result)
    if "epoch" in result:
        return _copy_status(result)
    parts = []
    if result["epochs"]:
        rows = counted(result["rows_written"], "row")
        files = counted(result["files_loaded"], "file")
        parts.append(f"loaded {rows} of {files} in {counted(result['epochs'], 'epoch')}")
    if result["rows_rejected"]:
        parts.append(f"rejected {counted(result['rows_rejected'], 'row')}")
    if result["files_skipped"]:
        parts.append(f"skipped {counted(len(result['files_skipped']), 'file')}")
    if result["files_known"]:
        copies = counted(len(result["files_known"]), "file")
        parts.append(f"did not load {copies} by the names of loaded ones")
    if result["files_set_aside"]:
        parts.append(f"set {counted(result['files_set_aside'], 'bad file')} aside")
    if result["compactions"]:
        parts.append(f"compacted {counted(result['compactions'], 'time')}")
    text = ", ".join(parts) or "nothing to load"
    waiting = result["lag_files"]
    return f"{text}; {counted(waiting, 'file')} left for later" if waiting else text


def _watch_status(result: Facts) -> str:
    """Return where a watch is."""
    text = f"epoch {result['epoch']:,}, {counted(result['files_total'], 'file')} loaded"
    if result["stuck_epoch"]:
        text += f"; epoch {result['stuck_epoch']:,} is begun and not committed ({result['stuck_files'][0]})"
    if result["lag_files"]:
        text += f"; {counted(result['lag_files'], 'file')} not loaded, the oldest is {result['oldest_file']}"
    if result["files_known"]:
        text += f"; {counted(len(result['files_known']), 'file')} by the names of loaded ones"
    return text


def _copy_status(result: Facts) -> str:
    """Return where a load that follows a table is."""
    text = f"epoch {result['epoch']:,}, {_place(result)}"
    return f"{text}; gap {result['gap']['kind']} in the history" if result["gap"] else text


def _place(result: Facts) -> str:
    """Transitional."""
    from lake.core.read.continuous.position import Lag, Position

    position, lag = result["position"], result["lag"]
    return place(Position.from_plain(position) if position else None, Lag(**lag) if lag else None)


def _topic(status: Status, plan: Facts, result: Facts) -> str:
    topic = f"of topic {plan['topic']}"
    if status is Status.DRY_RUN:
        number = plan["messages"]
        found = f"up to {counted(number, 'message')}" if number else "no message"
        return f"dry run: would load {found} {topic}{NOTHING_WRITTEN}"
    parts = []
    if result["epochs"]:
        messages, epochs = (
            counted(result["messages"], "message"),
            counted(result["epochs"], "epoch"),
        )
        parts.append(f"loaded {messages} {topic} in {epochs}")
    if result["rows_rejected"]:
        parts.append(f"rejected {counted(result['rows_rejected'], 'message')}")
    if result["messages_skipped"]:
        parts.append(f"skipped {counted(len(result['messages_skipped']), 'message')}")
    if result["gaps"]:
        passed = "found" if status is Status.SUSPECT else "skipped"
        parts.append(f"{passed} {counted(len(result['gaps']), 'gap')}")
    if result["messages_set_aside"]:
        parts.append(f"set {counted(result['messages_set_aside'], 'bad message')} aside")
    if result["compactions"]:
        parts.append(f"compacted {counted(result['compactions'], 'time')}")
    text = ", ".join(parts) or f"no new message {topic}"
    waiting, behind = result["lag_messages"], result["open_transactions"]
    why = " (behind a transaction that is not complete)" if behind else ""
    return f"{text}; {counted(waiting, 'message')} left for later{why}" if waiting else text


def _loaded_before(run: Facts) -> str:
    """Return when a run was loaded, as far as it is known: its snapshot may have expired."""
    when = f" on {readable_time(run['committed_at'])}" if run["committed_at"] else ""
    snapshot = f" (snapshot {run['snapshot_id']})" if run["snapshot_id"] else " before"
    return f'run "{run["run_id"]}" was loaded{when}{snapshot}; nothing to do'


def _planned_load(plan: Facts) -> str:
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


def _rows_that_may_match(plan: Facts) -> str:
    """Return the limits of what a load by key changes: only its run compares the keys."""
    text = f"up to {counted(plan['updated_rows_at_most'], 'row')}"
    if files := plan["examined_files"]:
        text += f" in {counted(files, 'file')}"
        partitions = [name for name in plan["examined_partitions"] or () if name]
        text += f" of {counted(len(partitions), 'partition')}" if partitions else ""
    return f"{text} may have the same keys (a dry run does not compare them)"


def _removed_rows(facts: Facts) -> str:
    """Return how many rows an overwrite removes; ``up to`` if metadata does not show the number."""
    if "removed_rows" in facts:
        return counted(facts["removed_rows"], "row")
    return f"up to {counted(facts['removed_rows_at_most'], 'row')}"


def _removed_from(plan: Facts) -> str:
    """Return the files and partitions that lose rows."""
    whole, partly = plan["removed_files"], plan["rewritten_files"]
    text = f" in {counted(whole + partly, 'file')}"
    named = [item for item in plan["removed_partitions"] or () if item["partition"]]
    if named:
        text += f" of {counted(len(named), 'partition')}"
    return f"{text} ({partly:,} of them in part)" if partly else text


def _partitioned(spec: str) -> str:
    return f"partitioned by {spec}" if spec else "not partitioned"


def _loaded(plan: Facts, result: Facts) -> str:
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
        return f"loaded {_rows_in_files(result)}{_filled(plan)}"
    if not result["removed_files"] + result["rewritten_files"]:
        return f"loaded {_rows_in_files(result)}; no row was replaced"
    text = f"replaced {_removed_rows(result)} by {result['rows_written']:,}"
    if result["rewritten_files"]:
        return f"{text}, rewrote {counted(result['rewritten_files'], 'file')}"
    return f"{text} in {_files(result)}"


def _filled(plan: Facts) -> str:
    """Return which columns got no value of the source; a column with a write default got that."""
    names = plan["filled_columns"] or []
    defaults = {item["name"] for item in plan["write_defaults"] or ()}
    them = "it" if len(names) == 1 else "them"
    where = f": the source lacks {them}" if plan["files"] == 1 else f" where a file lacks {them}"
    parts = []
    if given := [name for name in names if name in defaults]:
        parts.append(
            f"{_listed(given)} {'has its' if len(given) == 1 else 'have their'} write default"
        )
    if empty := [name for name in names if name not in defaults]:
        parts.append(f"{_listed(empty)} {'is' if len(empty) == 1 else 'are'} NULL")
    return f"; {', '.join(parts)}{where}" if parts else ""


def _listed(names: list[str]) -> str:
    if len(names) > _MOST_NAMED:
        return counted(len(names), "column")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _changed_rows(result: Facts) -> str:
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


def _rows_in_files(result: Facts) -> str:
    return f"{counted(result['rows_written'], 'row')} in {_files(result)}"


def _files(result: Facts) -> str:
    files = counted(result["data_files"], "file")
    if result["delete_files"]:
        files += f" and {counted(result['delete_files'], 'delete file')}"
    return f"{files} ({format_size(result['bytes_written'])})"
