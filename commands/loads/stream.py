"""Run a continuous load: `lake ingest --watch`, `--follow` or `--kafka`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.commands.groups import given
from lake.commands.loads.kafka import kafka_options
from lake.commands.parsing import parse_choice
from lake.core.base.choices import OnGap
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake.commands.loads.options import Streaming
    from lake.core.load.continuous.loader import Loader
    from lake.core.load.continuous.options import WatchOptions
    from lake.core.load.ingest.options import IngestOptions


def run_stream(loader: Loader, streaming: Streaming, *, quiet: bool, dry_run: bool) -> Outcome:
    """Load rows as they arrive.

    Args:
        loader: loads the epochs.
        streaming: the options of the stream.
        quiet: print no line at the start and after commits.
        dry_run: describe the plan only.

    Raises:
        InvalidRequestError: options contradict each other.
    """
    way = streaming.way or ""
    if loader.route is not None:
        _refuse_with_route(loader.options, streaming, way)
    _refuse_others(loader.options, way)
    if way == "--follow":
        return _run_copy(loader, streaming, quiet=quiet, dry_run=dry_run)
    if way == "--kafka":
        return _run_kafka(loader, streaming, quiet=quiet, dry_run=dry_run)
    from lake.core.load.continuous.files.execute import preview_watch, run_watch, watch_status

    watch = _watch_options(loader.options, streaming, quiet=quiet)
    compact = _compaction(loader, streaming, quiet=quiet)
    if streaming.beside.status:
        return watch_status(loader, watch)
    return preview_watch(loader, watch) if dry_run else run_watch(loader, watch, compact)


def _run_kafka(loader: Loader, streaming: Streaming, *, quiet: bool, dry_run: bool) -> Outcome:
    """Load the messages of a topic."""
    from lake.core.load.continuous.kafka.execute import preview_topic, run_topic, topic_status

    topic = kafka_options(loader, streaming, quiet=quiet)
    compact = _compaction(loader, streaming, quiet=quiet)
    if streaming.beside.status:
        return topic_status(loader, topic)
    return preview_topic(loader, topic) if dry_run else run_topic(loader, topic, compact)


def _run_copy(loader: Loader, streaming: Streaming, *, quiet: bool, dry_run: bool) -> Outcome:
    """Load what is added to another table."""
    from lake.core.load.continuous.table.execute import (
        CopyOptions,
        copy_status,
        preview_copy,
        run_copy,
    )
    from lake.core.read.continuous.options import parse_strategy

    options, position = loader.options, streaming.position
    if options.from_table is None or streaming.stream.stream is None:
        missing = "--from-table" if options.from_table is None else "--stream"
        raise InvalidRequestError(f"--follow needs {missing}")
    on_gap = OnGap(parse_choice(position.on_gap or "fail", "--on-gap", tuple(OnGap)))
    if on_gap is OnGap.TABLE and loader.by_key is not None:
        raise InvalidRequestError(
            "--on-gap table and loads by key contradict each other",
            hint="--on-gap skip goes on; then load the other table once with --from-table",
        )
    copy = CopyOptions(
        source=options.from_table,
        branch=options.branch,
        on_gap=on_gap,
        start=None if position.start is None else parse_strategy(position.start),
        start_at=position.start_at,
        from_snapshot=streaming.follow.from_snapshot,
        inclusive=streaming.follow.inclusive,
        quiet=quiet,
        **given(streaming.stream),
    )
    compact = _compaction(loader, streaming, quiet=quiet)
    if streaming.beside.status:
        return copy_status(loader, copy)
    return preview_copy(loader, copy) if dry_run else run_copy(loader, copy, compact)


def _refuse_with_route(options: IngestOptions, streaming: Streaming, way: str) -> None:
    """Refuse what a stream that is divided among tables does not have.

    Raises:
        InvalidRequestError: there is one.
    """
    from lake.core.load.routing.options import refuse_others

    if way != "--watch":
        raise InvalidRequestError(
            f"--route and {way} contradict each other",
            hint="a stream that is divided among tables loads files: --watch",
        )
    if streaming.beside.then_compact is not None:
        raise InvalidRequestError(
            "--route and --then-compact contradict each other",
            hint="compact each table with lake compact --when",
        )
    refuse_others(options)


def _refuse_others(options: IngestOptions, mode: str) -> None:
    from lake.core.load.ingest.options import APPEND
    from lake.core.load.ingest.rejects import check_rejects

    for flag, is_given in (
        (f"--{options.mode}", options.mode != APPEND),
        ("--from-table", options.from_table is not None and mode != "--follow"),
        ("--run-id", options.run_id is not None),
        ("--stage", options.stage),
    ):
        if is_given:
            raise InvalidRequestError(f"{flag} and {mode} contradict each other")
    if options.rejects is not None:
        check_rejects(options.rejects, may_exist=True)
    if options.sources == ["-"]:
        raise InvalidRequestError("standard input cannot be watched")


def _watch_options(options: IngestOptions, streaming: Streaming, *, quiet: bool) -> WatchOptions:
    from lake.core.load.continuous.files.listing import is_watched
    from lake.core.load.continuous.options import WatchOptions, parse_done

    watch = streaming.watch
    if streaming.stream.stream is None or watch.state is None:
        missing = "--stream" if streaming.stream.stream is None else "--state"
        raise InvalidRequestError(f"--watch needs {missing}")
    chosen = given(streaming.stream, watch, streaming.arrivals)
    source = chosen.pop("watch")
    chosen["done"], folder = parse_done(watch.done or "keep")
    if options.rejects is not None and is_watched(source, options.rejects):
        raise InvalidRequestError(
            f"{options.rejects} is in {source}: its rows would be loaded",
            hint="choose a folder for --rejects that is not watched",
        )
    return WatchOptions(
        source=source, branch=options.branch, done_folder=folder, quiet=quiet, **chosen
    )


def _compaction(
    loader: Loader, streaming: Streaming, *, quiet: bool
) -> Callable[[], Outcome] | None:
    """Return a function that compacts the table if that is due; None if that was not asked for."""
    when = streaming.beside.then_compact
    if when is None:
        return None
    from lake.core.maintain.compaction.run import compaction_after_epochs

    return compaction_after_epochs(
        loader.session, loader.table, when, branch=loader.options.branch, quiet=quiet
    )
