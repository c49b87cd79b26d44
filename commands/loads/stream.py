"""`lake ingest --watch`, `--follow` and `--kafka`: the options of a load that goes on, and its steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from lake.commands.loads.kafka import TopicFlags, kafka_options
from lake.commands.loads.load import load
from lake.commands.loads.route import RoutedLoad
from lake.commands.parsing import parse_choice
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms, parse_size, parse_time_ms
from lake.core.io.storage.errors import translate_errors

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.continuous.kafka.execute import LoadMessages
    from lake.core.load.continuous.options import WatchOptions
    from lake.core.load.ingest.options import IngestOptions
    from lake.core.load.routing.stream import Journal
    from lake.core.load.upsert.options import UpsertOptions
    from lake.core.table.snapshots.live_files import LiveFiles
    from lake.core.table.snapshots.streams import StreamEpoch
    from lake.core.transaction.session import Session

# The flags that each way to go on has, and those that all of them have.
_OWN = {
    "watch": (
        *("state", "commit_size", "commit_files", "settle", "done", "on_rewrite", "bad_files"),
        *("resume", "wait", "on_copy", "skip", "new_source", "status", "metrics_file"),
    ),
    "follow": (
        *("on_gap", "start", "from_snapshot", "inclusive", "start_at"),
        *("status", "metrics_file"),
    ),
    "kafka": (
        *("brokers", "kafka_conf", "kafka_conf_file", "kafka_metadata", "avro_schema"),
        *("on_gap", "start", "start_at", "commit_size", "bad_files", "skip"),
        *("status", "metrics_file"),
    ),
}
_SHARED = ("stream", "once", "commit_interval", "then_compact")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFlags(TopicFlags):
    """The flags of a load that goes on, as they were given."""

    watch: str | None = None
    state: str | None = None
    commit_files: int | None = None
    settle: str | None = None
    done: str | None = None
    on_rewrite: str | None = None
    on_copy: str | None = None
    new_source: bool = False
    status: bool = False
    resume: bool = False
    follow: bool = False
    from_snapshot: str | None = None
    inclusive: bool = False
    then_compact: str | None = None
    wait: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether the load goes on.

        Raises:
            InvalidRequestError: an option needs one that makes it go on.
        """
        given = [
            item.name
            for item in fields(self)
            if item.name != "quiet"
            and getattr(self, item.name) is not None
            and getattr(self, item.name) is not False
        ]
        mode = next((name for name in _OWN if name in given), None)
        if mode is None and given:
            ways = [name for name in _OWN if given[0] in (*_SHARED, *_OWN[name])]
            raise InvalidRequestError(f"{_flag(given[0])} needs {' or '.join(map(_flag, ways))}")
        for name in given:
            if mode is not None and name not in {mode, *_SHARED, *_OWN[mode]}:
                raise InvalidRequestError(f"{_flag(name)} and {_flag(mode)} contradict each other")
        return mode is not None

    def sources(self, given: list[str]) -> list[str]:
        """Return the sources of the load; what is watched counts as one."""
        source = self.kafka if self.watch is None else self.watch
        if source is None:
            return given
        if given:
            option = "--kafka" if self.watch is None else "--watch"
            raise InvalidRequestError(f"files and {option} contradict each other")
        return [source]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run_stream(
    session: Session,
    table: str,
    options: IngestOptions,
    by_key: UpsertOptions | ChangeOptions | None,
    flags: StreamFlags,
    routed: RoutedLoad | None = None,
    *,
    landed: Callable[[Outcome], None],
    dry_run: bool,
) -> Outcome:
    """Load files as they arrive.

    Args:
        session: the session.
        table: the table's name.
        options: how an epoch is loaded; its source is what is watched.
        by_key: the options of loads by key; None for other loads.
        flags: the other options.
        routed: the load into many tables; None to load into one.
        landed: called with the outcome of each epoch.
        dry_run: describe the plan only.

    Raises:
        InvalidRequestError: options contradict each other.
    """
    if routed is not None:
        _refuse_with_route(options, flags)
    if flags.follow:
        return _run_copy(session, table, options, by_key, flags, landed=landed, dry_run=dry_run)
    from lake.core.load.continuous.files.execute import (
        Steps,
        preview_watch,
        run_watch,
        watch_status,
    )
    from lake.core.load.continuous.schema_changes import count_before_new_schema

    _refuse_others(options, "--kafka" if flags.watch is None else "--watch")
    compact = _compaction(session, table, options.branch, flags)
    row_options = _with_rejects(options, flags)

    def load_messages(
        paths: Sequence[str],
        epoch: StreamEpoch,
        places: Mapping[str, tuple[str, Sequence[int]]] | None = None,
        added: Mapping[str, str] | None = None,
    ) -> Outcome:
        once = replace(
            row_options, sources=list(paths), epoch=epoch, places=places or {}, added=added or {}
        )
        outcome = load(session, table, once, by_key)
        _warn_of_rejects(session, once, outcome)
        landed(outcome)
        return outcome

    def load_epoch(paths: Sequence[str], epoch: StreamEpoch, journal: Journal) -> Outcome:
        if routed is None:
            return load_messages(paths, epoch)
        once = replace(options, sources=list(paths), epoch=epoch)
        outcome = routed.run(once, journal=journal)
        _warn_of_rejects(session, once, outcome)
        return outcome

    if flags.kafka is not None:
        return _run_kafka(session, table, options, flags, load_messages, compact, dry_run=dry_run)
    watch = replace(_watch_options(options, flags), route=routed.route if routed else None)
    if flags.status:
        return watch_status(session, table, watch)
    if dry_run:
        return preview_watch(session, table, watch)

    def of_one_schema(paths: Sequence[str]) -> int:
        sources = replace(options, sources=list(paths))
        name = table if routed is None else None
        return count_before_new_schema(session, name, sources) if options.evolve else len(paths)

    return run_watch(session, table, watch, Steps(load_epoch, of_one_schema, compact))


def _with_rejects(options: IngestOptions, flags: StreamFlags) -> IngestOptions:
    """Return the options by which messages that do not fit the table are written to the folder of bad ones."""
    if flags.kafka is None or flags.bad_files is None or options.rejects is not None:
        return options
    with translate_errors(flags.bad_files):
        os.makedirs(flags.bad_files, exist_ok=True)
    name = f"{flags.stream}-rejected.json"
    return replace(options, rejects=os.path.join(flags.bad_files, name))


def _warn_of_rejects(session: Session, options: IngestOptions, outcome: Outcome) -> None:
    """Warn of rows of an epoch that were not loaded: cron and services show warnings only."""
    rejected = outcome.result.get("rows_rejected")
    if rejected:
        rows = "1 row was" if rejected == 1 else f"{rejected:,} rows were"
        session.warn(f"{options.epoch}: {rows} rejected, see {options.rejects_file}")


def _run_kafka(
    session: Session,
    table: str,
    options: IngestOptions,
    flags: StreamFlags,
    load_epoch: LoadMessages,
    compact: Callable[[], Outcome] | None,
    *,
    dry_run: bool,
) -> Outcome:
    """Load the messages of a topic."""
    from lake.core.load.continuous.kafka.execute import preview_topic, run_topic, topic_status

    topic = kafka_options(session, options, flags)
    if flags.status:
        return topic_status(session, table, topic)
    if dry_run:
        return preview_topic(session, table, topic)
    return run_topic(session, table, topic, load_epoch, compact)


def _run_copy(
    session: Session,
    table: str,
    options: IngestOptions,
    by_key: UpsertOptions | ChangeOptions | None,
    flags: StreamFlags,
    *,
    landed: Callable[[Outcome], None],
    dry_run: bool,
) -> Outcome:
    """Load what is added to another table."""
    from lake.core.load.continuous.table.execute import (
        CopyOptions,
        copy_status,
        preview_copy,
        run_copy,
    )
    from lake.core.load.ingest.options import APPEND, OVERWRITE
    from lake.core.read.continuous.options import OnGap, parse_strategy

    _refuse_others(options, "--follow")
    if options.from_table is None or flags.stream is None:
        missing = "--from-table" if options.from_table is None else "--stream"
        raise InvalidRequestError(f"--follow needs {missing}")
    interval_ms = _parsed(parse_duration_ms, flags.commit_interval)
    on_gap = OnGap(parse_choice(flags.on_gap or "fail", "--on-gap", tuple(OnGap)))
    if on_gap is OnGap.TABLE and by_key is not None:
        raise InvalidRequestError(
            "--on-gap table and loads by key contradict each other",
            hint="--on-gap skip goes on; then load the other table once with --from-table",
        )
    copy = CopyOptions(
        source=options.from_table,
        stream=flags.stream,
        branch=options.branch,
        once=flags.once,
        on_gap=on_gap,
        starting=None if flags.start is None else parse_strategy(flags.start),
        start=flags.from_snapshot,
        inclusive=flags.inclusive,
        start_at_ms=_parsed(parse_time_ms, flags.start_at),
        metrics_path=flags.metrics_file,
        quiet=flags.quiet,
        **({} if interval_ms is None else {"interval_ms": interval_ms}),
    )
    compact = _compaction(session, table, options.branch, flags)
    if flags.status:
        return copy_status(session, table, copy)
    if dry_run:
        return preview_copy(session, table, copy)

    def load_files(files: LiveFiles, epoch: StreamEpoch, *, replaced: int | None = None) -> Outcome:
        once = replace(
            options,
            table_files=files,
            epoch=epoch,
            mode=APPEND if replaced is None else OVERWRITE,
            allow_empty=replaced is not None,
            replaced_head=replaced,
        )
        outcome = load(session, table, once, by_key)
        _warn_of_rejects(session, once, outcome)
        landed(outcome)
        return outcome

    return run_copy(session, table, copy, load_files, compact)


def _refuse_with_route(options: IngestOptions, flags: StreamFlags) -> None:
    """Refuse what a stream that is divided among tables does not have.

    Raises:
        InvalidRequestError: there is one.
    """
    from lake.core.load.routing.options import refuse_others

    for flag, given in (
        ("--follow", flags.follow),
        ("--kafka", flags.kafka is not None),
    ):
        if given:
            raise InvalidRequestError(
                f"--route and {flag} contradict each other",
                hint="a stream that is divided among tables loads files: --watch",
            )
    if flags.then_compact is not None:
        raise InvalidRequestError(
            "--route and --then-compact contradict each other",
            hint="compact each table with lake compact --when",
        )
    refuse_others(options)


def _refuse_others(options: IngestOptions, mode: str) -> None:
    from lake.core.load.ingest.options import APPEND
    from lake.core.load.ingest.rejects import check_rejects

    for flag, given in (
        (f"--{options.mode}", options.mode != APPEND),
        ("--from-table", options.from_table is not None and mode != "--follow"),
        ("--run-id", options.run_id is not None),
        ("--stage", options.stage),
    ):
        if given:
            raise InvalidRequestError(f"{flag} and {mode} contradict each other")
    if options.rejects is not None:
        check_rejects(options.rejects, may_exist=True)
    if options.sources == ["-"]:
        raise InvalidRequestError("standard input cannot be watched")


def _watch_options(options: IngestOptions, flags: StreamFlags) -> WatchOptions:
    from lake.core.load.continuous.files.listing import is_watched
    from lake.core.load.continuous.options import OnCopy, OnRewrite, WatchOptions, parse_done

    if flags.stream is None or flags.state is None:
        missing = "--stream" if flags.stream is None else "--state"
        raise InvalidRequestError(f"--watch needs {missing}")
    done, folder = parse_done(flags.done or "keep")
    sizes: dict[str, Any] = {
        "commit_interval_ms": _parsed(parse_duration_ms, flags.commit_interval),
        "commit_bytes": _parsed(parse_size, flags.commit_size),
        "commit_files": flags.commit_files,
        "settle_ms": _parsed(parse_duration_ms, flags.settle),
    }
    if options.rejects is not None and is_watched(options.sources[0], options.rejects):
        raise InvalidRequestError(
            f"{options.rejects} is in {options.sources[0]}: its rows would be loaded",
            hint="choose a folder for --rejects that is not watched",
        )
    rewrite = parse_choice(flags.on_rewrite or "fail", "--on-rewrite", tuple(OnRewrite))
    return WatchOptions(
        source=options.sources[0],
        stream=flags.stream,
        state=flags.state,
        branch=options.branch,
        done=done,
        done_folder=folder,
        on_rewrite=OnRewrite(rewrite),
        on_copy=OnCopy(parse_choice(flags.on_copy or "report", "--on-copy", tuple(OnCopy))),
        skip=tuple(flags.skip or ()),
        new_source=flags.new_source,
        metrics_path=flags.metrics_file,
        quiet=flags.quiet,
        bad_files=flags.bad_files,
        once=flags.once,
        resume=flags.resume,
        wait_ms=_parsed(parse_duration_ms, flags.wait),
        **{name: value for name, value in sizes.items() if value is not None},
    )


def _parsed(parse: Callable[[str], int], text: str | None) -> int | None:
    return None if text is None else parse(text)


def _compaction(
    session: Session, table: str, branch: str, flags: StreamFlags
) -> Callable[[], Outcome] | None:
    """Return a function that compacts the table if that is due; None if that was not asked for."""
    when, quiet = flags.then_compact, flags.quiet
    if when is None:
        return None
    from lake.core.maintain.compaction.execute import execute
    from lake.core.maintain.compaction.options import compaction_options
    from lake.core.maintain.compaction.plan import plan_compaction
    from lake.core.maintain.compaction.triggers import (
        compact_when_due,
        parse_trigger,
        why_nothing_was_compacted,
    )
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.locks.table_lock import with_table_lock

    condition = parse_trigger(when, option=Option.THEN_COMPACT)
    reported: list[set[str]] = []

    def work(now: Table, operation_id: str) -> Outcome:
        plan = plan_compaction(
            now, compaction_options({}, {}, now.properties), branch=branch, shown=False
        )
        return execute(session, plan, operation_id)

    def compact() -> Outcome:
        now = session.table(table)
        outcome = compact_when_due(
            now,
            condition,
            lambda: with_table_lock(
                session, now, work, command="compact", branch=branch, repeated=True
            ),
            branch=branch,
            now_ms=session.clock.now_ms(),
        )
        reason, alone = why_nothing_was_compacted(outcome), set(outcome.plan.get("left_alone", ()))
        if reason is not None and alone not in reported and not quiet:
            reported.append(alone)
            session.note(reason, {"left_alone": ", ".join(sorted(alone))})
        return outcome

    return compact
