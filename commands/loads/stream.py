"""`lake ingest --watch`, `--follow` and `--kafka`: the options of a load that goes on, and its steps."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from lake.commands.loads.kafka import TopicFlags, kafka_options
from lake.commands.parsing import parse_choice
from lake.core.base.choices import OnCopy, OnGap, OnRewrite
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms, parse_size, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake.core.load.continuous.loader import Loader
    from lake.core.load.continuous.options import WatchOptions
    from lake.core.load.ingest.options import IngestOptions

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
    wait: int | None = None

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


def run_stream(loader: Loader, flags: StreamFlags, *, dry_run: bool) -> Outcome:
    """Load rows as they arrive.

    Args:
        loader: loads the epochs.
        flags: the options of the stream.
        dry_run: describe the plan only.

    Raises:
        InvalidRequestError: options contradict each other.
    """
    if loader.route is not None:
        _refuse_with_route(loader.options, flags)
    if flags.follow:
        return _run_copy(loader, flags, dry_run=dry_run)
    _refuse_others(loader.options, "--kafka" if flags.watch is None else "--watch")
    if flags.kafka is not None:
        return _run_kafka(loader, flags, dry_run=dry_run)
    from lake.core.load.continuous.files.execute import preview_watch, run_watch, watch_status

    watch = replace(_watch_options(loader.options, flags), route=loader.route)
    compact = _compaction(loader, flags)
    if flags.status:
        return watch_status(loader, watch)
    return preview_watch(loader, watch) if dry_run else run_watch(loader, watch, compact)


def _run_kafka(loader: Loader, flags: StreamFlags, *, dry_run: bool) -> Outcome:
    """Load the messages of a topic."""
    from lake.core.load.continuous.kafka.execute import preview_topic, run_topic, topic_status

    topic = kafka_options(loader.session, loader.options, flags)
    compact = _compaction(loader, flags)
    if flags.status:
        return topic_status(loader, topic)
    return preview_topic(loader, topic) if dry_run else run_topic(loader, topic, compact)


def _run_copy(loader: Loader, flags: StreamFlags, *, dry_run: bool) -> Outcome:
    """Load what is added to another table."""
    from lake.core.load.continuous.table.execute import (
        CopyOptions,
        copy_status,
        preview_copy,
        run_copy,
    )
    from lake.core.read.continuous.options import parse_strategy

    options = loader.options
    _refuse_others(options, "--follow")
    if options.from_table is None or flags.stream is None:
        missing = "--from-table" if options.from_table is None else "--stream"
        raise InvalidRequestError(f"--follow needs {missing}")
    interval_ms = _parsed(parse_duration_ms, flags.commit_interval)
    on_gap = OnGap(parse_choice(flags.on_gap or "fail", "--on-gap", tuple(OnGap)))
    if on_gap is OnGap.TABLE and loader.by_key is not None:
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
    compact = _compaction(loader, flags)
    if flags.status:
        return copy_status(loader, copy)
    return preview_copy(loader, copy) if dry_run else run_copy(loader, copy, compact)


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
    from lake.core.load.continuous.options import WatchOptions, parse_done

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
        wait_ms=flags.wait,
        **{name: value for name, value in sizes.items() if value is not None},
    )


def _parsed(parse: Callable[[str], int], text: str | None) -> int | None:
    return None if text is None else parse(text)


def _compaction(loader: Loader, flags: StreamFlags) -> Callable[[], Outcome] | None:
    """Return a function that compacts the table if that is due; None if that was not asked for."""
    if flags.then_compact is None:
        return None
    from lake.core.maintain.compaction.run import compaction_after_epochs

    return compaction_after_epochs(
        loader.session,
        loader.table,
        flags.then_compact,
        branch=loader.options.branch,
        quiet=flags.quiet,
    )
