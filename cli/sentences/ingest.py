"""What `lake ingest` did, as one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lake.cli.sentences.line import Line, branch_option
from lake.cli.sentences.words import NOTHING_WRITTEN, earlier_run, place
from lake.core.base.facts import Facts
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted, format_size
from lake.core.load.continuous.facts import (
    CopyFacts,
    CopyResult,
    CopyStatus,
    TopicFacts,
    TopicResult,
    WatchFacts,
    WatchResult,
    WatchStatus,
)
from lake.core.load.ingest.facts import (
    DiscardFacts,
    DiscardResult,
    ExaminedFacts,
    IngestFacts,
    IngestResult,
    RemovalFacts,
    RemovedRows,
    UpsertFacts,
)
from lake.core.load.routing.facts import RouteFacts, RouteResult

# More columns than this are counted in a sentence.
_MOST_NAMED = 3


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    status = outcome.status
    if isinstance(outcome.plan, TopicFacts):
        return _topic(status, outcome.plan, TopicResult.of(outcome.result))
    if isinstance(outcome.plan, WatchFacts | CopyFacts):
        return _stream(status, outcome.plan, outcome.result)
    if isinstance(outcome.plan, RouteFacts):
        return _routed(status, outcome.plan.planned or RouteResult.of(outcome.result))
    if isinstance(outcome.plan, DiscardFacts) or isinstance(outcome.result, DiscardResult):
        return _discarded(DiscardFacts.of(outcome.plan), DiscardResult.of(outcome.result), status)
    plan, result = IngestFacts.of(outcome.plan), IngestResult.of(outcome.result)
    if status is Status.DRY_RUN:
        return f"dry run: would {_planned_load(plan)}{NOTHING_WRITTEN}"
    if plan.loaded_run:
        return earlier_run(plan.loaded_run, "loaded")
    if status is Status.NOTHING_TO_DO:
        return "nothing to load"
    if result.staged:
        run_id = result.staged.run_id
        return f'staged {_rows_in_files(result)} as run "{run_id}"; the table is unchanged'
    text = _loaded(plan, result)
    if result.rows_rejected:
        text += f", rejected {counted(result.rows_rejected, 'row')}"
    return f"created the table and {text}" if plan.creates_table else text


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that goes on with a load, or that commits a staged one."""
    plan, staged = outcome.plan, IngestResult.of(outcome.result).staged
    routed = isinstance(plan, WatchFacts) and plan.route is not None
    if routed or (isinstance(plan, RouteFacts) and not plan.run_id):
        # A repetition would load the rows of the other tables again.
        return None
    if outcome.status is Status.PARTIAL and line.rest:
        return line.again("ingest")
    if outcome.status is Status.DONE and staged:
        number = staged.checkpoint_id
        words = ["--job", staged.job_id, "--completed", number, *branch_option(outcome)]
        return line.of("replay", outcome.table, *words)
    return None


def _discarded(plan: DiscardFacts, result: DiscardResult, status: Status) -> str:
    run = plan.run or result.run
    name = f'run "{run.run_id if run else ""}"'
    if status is Status.DRY_RUN:
        files = counted(plan.data_files + plan.delete_files, "file")
        return f"dry run: would discard {name} and delete its {files}{NOTHING_WRITTEN}"
    return f"discarded {name} and deleted {counted(result.removed_files, 'file')}"


def _routed(status: Status, result: RouteResult) -> str:
    """Return what a load into many tables did; the table above names each."""
    failed = sum(item.error is not None for item in result.tables)
    loaded = [item for item in result.tables if item.rows]
    text = f"{counted(result.rows_written, 'row')} into {counted(len(loaded), 'table')}"
    created = sum(item.created for item in loaded)
    if created:
        text += f" ({created:,} new)"
    ending = f"; {counted(failed, 'table')} failed" if failed else ""
    if status is Status.DRY_RUN:
        return f"dry run: would load {text}{ending}{NOTHING_WRITTEN}"
    if result.rows_rejected:
        ending = f", rejected {counted(result.rows_rejected, 'row')}{ending}"
    if loaded:
        return f"loaded {text}{ending}"
    return f"nothing loaded{ending}" if failed else f"nothing to load{ending}"


def _stream(status: Status, plan: WatchFacts | CopyFacts, result: Facts) -> str:
    if status is Status.DRY_RUN:
        files = f"{counted(plan.files or 0, 'file')} ({format_size(plan.bytes or 0)})"
        return f"dry run: would load {files}{NOTHING_WRITTEN}"
    if isinstance(result, WatchStatus):
        return _watch_status(result)
    if isinstance(result, CopyStatus):
        text = f"epoch {result.epoch:,}, {place(result.position, result.lag)}"
        return f"{text}; gap {result.gap.kind} in the history" if result.gap else text
    done = result if isinstance(result, CopyResult) else WatchResult.of(result)
    loaded = done.rows or IngestResult()
    parts = []
    if done.epochs:
        rows, files = counted(loaded.rows_written, "row"), counted(done.files_loaded, "file")
        parts.append(f"loaded {rows} of {files} in {counted(done.epochs, 'epoch')}")
    if loaded.rows_rejected:
        parts.append(f"rejected {counted(loaded.rows_rejected, 'row')}")
    if isinstance(done, WatchResult):
        parts += _left_out(done)
    if done.compactions:
        parts.append(f"compacted {counted(done.compactions, 'time')}")
    text = ", ".join(parts) or "nothing to load"
    waiting = done.lag_files if isinstance(done, WatchResult) else 0
    return f"{text}; {counted(waiting, 'file')} left for later" if waiting else text


def _left_out(result: WatchResult) -> list[str]:
    parts = []
    if result.files_skipped:
        parts.append(f"skipped {counted(len(result.files_skipped), 'file')}")
    if result.files_known:
        copies = counted(len(result.files_known), "file")
        parts.append(f"did not load {copies} by the names of loaded ones")
    if result.files_set_aside:
        parts.append(f"set {counted(result.files_set_aside, 'bad file')} aside")
    return parts


def _watch_status(result: WatchStatus) -> str:
    """Return where a watch is."""
    text = f"epoch {result.epoch:,}, {counted(result.files_total, 'file')} loaded"
    if result.stuck_epoch:
        text += (
            f"; epoch {result.stuck_epoch:,} is begun and not committed ({result.stuck_files[0]})"
        )
    if result.lag_files:
        text += (
            f"; {counted(result.lag_files, 'file')} not loaded, the oldest is {result.oldest_file}"
        )
    if result.files_known:
        text += f"; {counted(len(result.files_known), 'file')} by the names of loaded ones"
    return text


def _topic(status: Status, plan: TopicFacts, result: TopicResult) -> str:
    topic = f"of topic {plan.topic}"
    if status is Status.DRY_RUN:
        number = plan.messages
        found = f"up to {counted(number, 'message')}" if number else "no message"
        return f"dry run: would load {found} {topic}{NOTHING_WRITTEN}"
    parts = []
    if result.epochs:
        messages, epochs = counted(result.messages, "message"), counted(result.epochs, "epoch")
        parts.append(f"loaded {messages} {topic} in {epochs}")
    if result.rows and result.rows.rows_rejected:
        parts.append(f"rejected {counted(result.rows.rows_rejected, 'message')}")
    if result.messages_skipped:
        parts.append(f"skipped {counted(len(result.messages_skipped), 'message')}")
    if result.gaps:
        passed = "found" if status is Status.SUSPECT else "skipped"
        parts.append(f"{passed} {counted(len(result.gaps), 'gap')}")
    if result.messages_set_aside:
        parts.append(f"set {counted(result.messages_set_aside, 'bad message')} aside")
    if result.compactions:
        parts.append(f"compacted {counted(result.compactions, 'time')}")
    text = ", ".join(parts) or f"no new message {topic}"
    waiting, behind = result.lag_messages, result.open_transactions
    why = " (behind a transaction that is not complete)" if behind else ""
    return f"{text}; {counted(waiting, 'message')} left for later{why}" if waiting else text


def _planned_load(plan: IngestFacts) -> str:
    kind = f"{plan.format.upper()} " if plan.format else ""
    source = f"{counted(plan.files, kind + 'file')} ({format_size(plan.bytes)})"
    if plan.creates_table:
        columns = counted(len(plan.schema), "column")
        spec = ", ".join(re.sub(r"^identity\((.*)\) as \1$", r"\1", x) for x in plan.partition_spec)
        return f"create the table ({columns}, {_partitioned(spec)}) and load {source}"
    key = plan.by_key.key if plan.by_key else ()
    if plan.by_key and plan.by_key.changes_column:
        return f"apply the changes in {source} by {', '.join(key)}"
    if key:
        text = f"update or insert the rows of {source} by {', '.join(key)}"
        examined = plan.by_key.examined if isinstance(plan.by_key, UpsertFacts) else None
        if examined and examined.updated_rows_at_most:
            text += f"; {_rows_that_may_match(examined)}"
        return text
    if plan.mode == "append":
        return f"load {source}"
    if plan.removed is None or plan.removed.removed_rows_at_most is None:
        return (
            f"load {source} and replace the partitions that receive rows "
            "(the source is too large to read for a dry run)"
        )
    if not plan.removed_files + plan.rewritten_files:
        return f"load {source} and remove no rows"
    return (
        f"remove {_removed_rows(plan.removed)}{_removed_from(plan, plan.removed)} and load {source}"
    )


def _rows_that_may_match(examined: ExaminedFacts) -> str:
    """Return the limits of what a load by key changes: only its run compares the keys."""
    text = f"up to {counted(examined.updated_rows_at_most, 'row')}"
    if files := examined.examined_files:
        text += f" in {counted(files, 'file')}"
        partitions = [name for name in examined.examined_partitions if name]
        text += f" of {counted(len(partitions), 'partition')}" if partitions else ""
    return f"{text} may have the same keys (a dry run does not compare them)"


def _removed_rows(removed: RemovedRows) -> str:
    """Return how many rows an overwrite removes; ``up to`` if metadata does not show the number."""
    if removed.removed_rows is not None:
        return counted(removed.removed_rows, "row")
    return f"up to {counted(removed.removed_rows_at_most or 0, 'row')}"


def _removed_from(plan: IngestFacts, removed: RemovalFacts) -> str:
    """Return the files and partitions that lose rows."""
    whole, partly = plan.removed_files, plan.rewritten_files
    text = f" in {counted(whole + partly, 'file')}"
    named = [item for item in removed.removed_partitions or () if item.partition]
    if named:
        text += f" of {counted(len(named), 'partition')}"
    return f"{text} ({partly:,} of them in part)" if partly else text


def _partitioned(spec: str) -> str:
    return f"partitioned by {spec}" if spec else "not partitioned"


def _loaded(plan: IngestFacts, result: IngestResult) -> str:
    by_key = plan.by_key
    if by_key and by_key.changes_column:
        changes = counted(result.rows_read, "change")
        if result.rows_deleted is None:
            return f"applied {changes} in {_files(result)}"
        counts = {
            "updated": result.rows_updated,
            "inserted": result.rows_inserted,
            "deleted": result.rows_deleted,
        }
        done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        return f"applied {changes}: {done or 'nothing changed'}"
    if by_key and by_key.key:
        return f"{_changed_rows(result)} ({result.rows_read:,} read)"
    if plan.mode == "append":
        return f"loaded {_rows_in_files(result)}{_filled(plan)}"
    if not (result.removed_files or result.rewritten_files):
        return f"loaded {_rows_in_files(result)}; no row was replaced"
    text = f"replaced {_removed_rows(result.removed or RemovedRows())} by {result.rows_written:,}"
    if result.rewritten_files:
        return f"{text}, rewrote {counted(result.rewritten_files, 'file')}"
    return f"{text} in {_files(result)}"


def _filled(plan: IngestFacts) -> str:
    """Return which columns got no value of the source; a column with a write default got that."""
    names = plan.filled_columns
    defaults = {item.name for item in plan.write_defaults}
    them = "it" if len(names) == 1 else "them"
    where = f": the source lacks {them}" if plan.files == 1 else f" where a file lacks {them}"
    parts = []
    if given := [name for name in names if name in defaults]:
        parts.append(
            f"{_listed(given)} {'has its' if len(given) == 1 else 'have their'} write default"
        )
    if empty := [name for name in names if name not in defaults]:
        parts.append(f"{_listed(empty)} {'is' if len(empty) == 1 else 'are'} NULL")
    return f"; {', '.join(parts)}{where}" if parts else ""


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMED:
        return counted(len(names), "column")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _changed_rows(result: IngestResult) -> str:
    """Return how many rows a load by key updated and inserted; ``row`` is written once."""
    updated, inserted = result.rows_updated, result.rows_inserted
    if updated is None or inserted is None:
        return f"wrote {counted(result.rows_written, 'row')} by key"
    if updated and inserted:
        return f"{counted(updated, 'row')} updated, {inserted:,} inserted"
    done = "updated" if updated else "inserted"
    return (
        f"{counted(updated + inserted, 'row')} {done}" if updated + inserted else "no row changed"
    )


def _rows_in_files(result: IngestResult) -> str:
    return f"{counted(result.rows_written, 'row')} in {_files(result)}"


def _files(result: IngestResult) -> str:
    files = counted(result.data_files, "file")
    if result.delete_files:
        files += f" and {counted(result.delete_files, 'delete file')}"
    return f"{files} ({format_size(result.bytes_written)})"
