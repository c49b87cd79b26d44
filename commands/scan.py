"""`lake scan`: read a table, or the rows appended or changed between two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import announce_warnings, session_of
from lake.commands.groups import Flag, given, require
from lake.commands.options import (
    Branch,
    TableArgument,
    Wait,
    Where,
    absolute_time,
    duration,
    names,
    size,
)
from lake.commands.outputs import OutputOptions, check_format, output_of
from lake.commands.parsing import parse_names
from lake.core.base.choices import (
    STARTS,
    NonAppend,
    OnGap,
    Order,
    Overflow,
    SchemaMode,
    TimeUnit,
)
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import is_duration, parse_duration_ms, parse_size, parse_time_ms

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.read.continuous.options import FollowOptions, Until
    from lake.core.read.continuous.position import Strategy
    from lake.core.read.exports.destinations import Output
    from lake.core.read.scan.partner_keys import KeyOptions
    from lake.core.read.scan.plan import ScanOptions
    from lake.core.read.scan.scan_keys import ScanKeys
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


def _size(text: str) -> int:
    return 0 if text.strip() == "0" else parse_size(text)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return columns of the table and their partners; a name without ``=`` is both."""
    pairs = []
    for name in parse_names(text) or ():
        left, equals, right = name.partition("=")
        left, right = left.strip(), right.strip() if equals else left.strip()
        if not left or not right or "=" in right:
            raise InvalidRequestError(f"--on takes COLUMN=COLUMN, not {name!r}")
        pairs.append((left, right))
    return pairs


def _strategy(text: str) -> Strategy:
    from lake.core.read.continuous.options import parse_strategy

    return parse_strategy(text)


def _until(text: str) -> Until:
    """Return a duration, a time, or a snapshot: digits alone are a snapshot id."""
    from lake.core.base.units import parse_time_ms
    from lake.core.read.continuous.options import Until

    if is_duration(text):
        return Until(after_ms=parse_duration_ms(text))
    if not text.isdecimal():
        try:
            return Until(time_ms=parse_time_ms(text))
        except InvalidRequestError:
            pass
    return Until(snapshot=text)


@dataclass(frozen=True, kw_only=True)
class RowsAndColumns:
    """Rows and columns."""

    where: Where = None
    select: Annotated[Sequence[str] | None, names("Columns to read.", "a,b.c")] = None
    limit: Annotated[int | None, Flag("Read at most N rows.", "N")] = None
    ignore_case: Annotated[bool, Flag("Match column names in any case.")] = False


@dataclass(frozen=True, kw_only=True)
class Start:
    """Snapshots.

    Where a scan starts, also a continuous one.
    """

    from_snapshot: Annotated[
        str | None,
        Flag("Read only rows appended after this snapshot.", "REF", callback=absolute_time),
    ] = None
    inclusive: Annotated[bool, Flag("Include the rows of --from-snapshot itself.")] = False


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """Snapshots."""

    snapshot: Annotated[
        str | None,
        Flag("Snapshot to read: id, tag, branch or @TIME.", "REF", callback=absolute_time),
    ] = None
    to_snapshot: Annotated[
        str | None, Flag("Read up to this snapshot, inclusive.", "REF", callback=absolute_time)
    ] = None
    branch: Branch = "main"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Snapshots.

    What is read between them.
    """

    changes: Annotated[bool, Flag("Read inserted, deleted and updated rows by snapshot.")] = False
    key: Annotated[
        Sequence[str] | None,
        names("Key columns that identify updates (--changes).", "a,b"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Plan."""

    split_size: Annotated[
        int | None, Flag("Size of a split [default: 128MB].", "SIZE", parse=_size)
    ] = None
    split_lookback: Annotated[int | None, Flag("Open splits while packing [default: 10].", "N")] = (
        None
    )
    split_open_cost: Annotated[
        int | None, Flag("Minimum weight of a file [default: 4MB].", "SIZE", parse=_size)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Partners:
    """Rows with a partner."""

    prune_with: Annotated[
        str | None,
        Flag(
            "Skip what has no partner in a table or file (--on).",
            "TABLE[@REF] [where EXPR]|FILE",
        ),
    ] = None
    on: Annotated[
        Sequence[tuple[str, str]] | None,
        Flag("Columns of the table and their partners.", "a=b,c", parse=_pairs),
    ] = None
    prune_limit: Annotated[
        int | None, Flag("Most bytes of keys; 0 for no limit [default: 8MB].", "SIZE", parse=_size)
    ] = None
    prune_overflow: Annotated[Overflow | None, Flag("If there are more keys [default: range].")] = (
        None
    )
    matching: Annotated[bool, Flag("Return only rows with a partner.")] = False
    no_prune: Annotated[bool, Flag("Skip no files because of --prune-with.")] = False

    def options(self, *, ignore_case: bool) -> KeyOptions | None:
        """Return the options of --prune-with; None without it.

        Raises:
            InvalidRequestError: an option is missing.
        """
        if self.prune_with is None:
            require("--prune-with", self)
            return None
        from lake.core.read.scan.partner_keys import KeyOptions

        if self.on is None:
            raise InvalidRequestError("--prune-with needs --on", hint="--on store_id=id")
        return KeyOptions(**given(self), ignore_case=ignore_case)


@dataclass(frozen=True, kw_only=True)
class Target(OutputOptions):
    """Output."""

    plan_only: Annotated[bool, Flag("Show the plan; read no data.", name="--plan")] = False


@dataclass(frozen=True, kw_only=True)
class Mode:
    """Continuous scan."""

    follow: Annotated[bool, Flag("Go on reading what is appended or changed.")] = False
    status: Annotated[bool, Flag("Show position and lag; read no data.")] = False


@dataclass(frozen=True, kw_only=True)
class Following:
    """Continuous scan.

    Where it starts, when it ends, and its epochs.
    """

    state: Annotated[str | None, Flag("Folder that keeps the position.", "DIR")] = None
    # A strategy.
    start: Annotated[
        object,
        Flag(
            "Where a new state starts [default: table; latest-exclusive without --state].",
            "|".join(STARTS),
            parse=_strategy,
        ),
    ] = None
    start_at: Annotated[
        int | None,
        Flag("Start with the first snapshot since TIME.", "TIME", parse=parse_time_ms),
    ] = None
    once: Annotated[bool, Flag("Read what is there, and end.")] = False
    # An `Until`.
    until: Annotated[object, Flag("When to end.", "DURATION|TIME|REF", parse=_until)] = None
    max_epochs: Annotated[int | None, Flag("End after N epochs.", "N")] = None
    epoch_size: Annotated[int | None, size("Size of an epoch [default: 1GB].")] = None
    epoch_markers: Annotated[bool, Flag("Write a JSON line after each epoch.")] = False
    wait: Wait = None


@dataclass(frozen=True, kw_only=True)
class WhatIsRead:
    """What a continuous scan reads."""

    on_gap: Annotated[OnGap | None, Flag("If unread snapshots have expired [default: fail].")] = (
        None
    )
    non_append: Annotated[
        NonAppend | None, Flag("Snapshots that are not appends [default: skip].")
    ] = None
    schema: Annotated[
        SchemaMode | None, Flag("Follow the table's schema or pin it [default: follow].")
    ] = None
    order: Annotated[Order | None, Flag("Order of the splits [default: fifo].")] = None
    watermark_column: Annotated[str | None, Flag("Column with the time of a row.", "NAME")] = None
    watermark_unit: Annotated[TimeUnit | None, Flag("Its unit, if it is a long [default: us].")] = (
        None
    )
    consumer: Annotated[
        str | None, Flag("Let expire keep unread snapshots, by a branch.", "NAME")
    ] = None
    consumer_ttl: Annotated[
        int | None, duration("End that when the branch's head is this old [default: 30d].")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """Discovery of a continuous scan."""

    monitor_interval: Annotated[int | None, duration("Time between two looks [default: 60s].")] = (
        None
    )
    max_planning_snapshots: Annotated[
        int | None, Flag("Snapshots to plan at once [default: 100].", "N")
    ] = None
    max_planning_failures: Annotated[
        int | None, Flag("Failed looks in a row; -1 for any [default: 3].", "N")
    ] = None
    max_pending_splits: Annotated[
        int | None, Flag("Pending splits at which looking pauses.", "N")
    ] = None
    metrics_file: Annotated[str | None, Flag("Write metrics for node_exporter.", "PATH")] = None


def scan(
    context: typer.Context,
    table: TableArgument,
    rows: RowsAndColumns,
    snapshots: Snapshots,
    start: Start,
    changes: Changes,
    target: Target,
    splits: Splits,
    partners: Partners,
    mode: Mode,
    following: Following,
    what: WhatIsRead,
    discovery: Discovery,
) -> Outcome:
    """Read a table, or what changed since a snapshot."""
    from lake.core.read.scan.plan import ScanOptions

    keys = partners.options(ignore_case=rows.ignore_case)
    if changes.key is not None and not changes.changes:
        raise InvalidRequestError("--key needs --changes")
    if snapshots.snapshot is not None and changes.changes:
        raise InvalidRequestError("--changes contradicts --snapshot")
    if mode.follow:
        from lake.core.read.continuous.options import FollowOptions

        output = _follow_output(context, target, mode)
        options = FollowOptions(
            scan=ScanOptions(**given(rows, snapshots, splits)),
            output=output,
            prune_with=keys,
            **given(start, changes, following, what, discovery),
        )
        return _follow(context, table, options, mode, plan_only=target.plan_only)
    require("--follow", mode, following, what, discovery)
    reads = not target.plan_only or target.output is not None or target.replace
    output = output_of(context, target) if reads else None
    session = session_of(context)
    asked = ScanOptions(**given(rows, snapshots, start, splits))
    if changes.changes:
        key = changes.key or ()
        return _changes(session, table, asked, key, keys, output, plan_only=target.plan_only)
    return _scan(session, table, asked, keys, output, plan_only=target.plan_only)


def _scan(
    session: Session,
    name: str,
    options: ScanOptions,
    key_options: KeyOptions | None,
    target: Output | None,
    *,
    plan_only: bool,
) -> Outcome:
    from lake.core.read.scan.execute import describe, preview, reported_plan, write
    from lake.core.read.scan.plan import scan_schema

    table = session.table(name)
    with _keys(session, table, key_options, lambda: scan_schema(table, options)) as keys:
        plan = reported_plan(session, table, options, keys)
        if plan_only:
            return describe(plan)
        if target is None:
            return preview(plan)
        return write(session, plan, target)


def _changes(
    session: Session,
    name: str,
    options: ScanOptions,
    key: Sequence[str],
    key_options: KeyOptions | None,
    target: Output | None,
    *,
    plan_only: bool,
) -> Outcome:
    from lake.core.read.changelog.execute import describe, preview, write
    from lake.core.read.changelog.plan import plan_changelog

    table = session.table(name)
    with _keys(session, table, key_options, lambda: table.schema) as keys:
        plan = plan_changelog(table, options, key, keys)
        if plan_only:
            return describe(plan)
        if target is None:
            return preview(plan)
        return write(session, plan, target)


@contextmanager
def _keys(
    session: Session, table: Table, options: KeyOptions | None, schema: Callable[[], Schema]
) -> Iterator[ScanKeys | None]:
    """Give the keys of the partners; None without --prune-with."""
    if options is None:
        yield None
        return
    from lake.core.read.scan.partner_keys import partner_keys

    with partner_keys(session, table, schema(), options) as keys:
        yield keys


def _follow(
    context: typer.Context, table: str, options: FollowOptions, mode: Mode, *, plan_only: bool
) -> Outcome:
    """Run a continuous scan, or show its plan or its state."""
    from lake.core.read.continuous.describe import describe
    from lake.core.read.continuous.execute import follow
    from lake.core.read.continuous.status import status

    if plan_only and mode.status:
        raise InvalidRequestError("--plan contradicts --status")
    if mode.status and options.state is None:
        raise InvalidRequestError("--status needs --state")
    session = session_of(context)
    if plan_only:
        return describe(session, table, options)
    if mode.status:
        return status(session, table, options)
    if not options.once:
        announce_warnings(context, session)
    return follow(session, table, options)


def _follow_output(context: typer.Context, target: Target, mode: Mode) -> Output | None:
    """Return the folder or the stream for the rows; None if no rows are read."""
    from lake.core.read.exports.destinations import output_folder

    if target.replace:
        raise InvalidRequestError("--replace contradicts --follow")
    if target.output not in {None, "-"}:
        check_format(target.output_format)
        return output_folder(target.output, target.output_format)
    if target.plan_only or mode.status:
        return None
    return output_of(context, OutputOptions(output="-", output_format=target.output_format))
