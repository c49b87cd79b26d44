"""`lake scan`: read a table, or the rows appended or changed between two snapshots."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lake.commands.context import announce_warnings, session_of
from lake.commands.options import (
    Branch,
    OutputFormat,
    OutputPath,
    ReplaceOutput,
    TableArgument,
    Wait,
    Where,
    absolute_time,
)
from lake.commands.parsing import parse_choice, parse_names
from lake.core.base.choices import EXPORT_FORMATS
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import is_duration, parse_duration_ms, parse_size

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.read.continuous.options import FollowOptions, Until
    from lake.core.read.exports.destinations import Output
    from lake.core.read.scan.partner_keys import KeyOptions
    from lake.core.read.scan.plan import ScanOptions
    from lake.core.read.scan.scan_keys import ScanKeys
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

T = TypeVar("T")

# The parameters that need --follow.
_FOLLOW_ONLY = (
    *("state", "start", "start_at", "once", "until", "max_epochs", "monitor_interval"),
    *("max_planning_snapshots", "max_planning_failures", "max_pending_splits", "epoch_size"),
    *("order", "watermark_column", "watermark_unit", "non_append", "on_gap", "schema"),
    *("consumer", "consumer_ttl", "epoch_markers", "metrics_file", "wait", "status"),
)
_ORDERS = ("fifo", "sequence", "time")
_TIME_UNITS = ("us", "ms", "s")
_NON_APPEND = ("skip", "fail")
_ON_GAP = ("fail", "skip", "table")
_SCHEMAS = ("follow", "pin")
_OVERFLOWS = ("range", "none", "fail")
_PRUNE_LIMIT = "8MB"
# The parameters that need --prune-with.
_PRUNE_ONLY = ("on", "prune_limit", "prune_overflow", "matching", "no_prune")


def scan(
    context: typer.Context,
    table: TableArgument,
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="Snapshot to read: id, tag, branch or @TIME.",
        ),
    ] = None,
    from_snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="Read only rows appended after this snapshot.",
        ),
    ] = None,
    inclusive: Annotated[
        bool, typer.Option("--inclusive", help="Include the rows of --from-snapshot itself.")
    ] = False,
    to_snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="REF", callback=absolute_time, help="Read up to this snapshot, inclusive."
        ),
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="Read inserted, deleted and updated rows by snapshot.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="a,b", help="Key columns that identify updates (--changes)."),
    ] = None,
    where: Where = None,
    select: Annotated[str | None, typer.Option(metavar="a,b.c", help="Columns to read.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Read at most N rows.")] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", help="Match column names in any case.")
    ] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Show the plan; read no data.")] = False,
    split_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of a split [default: 128MB].")
    ] = None,
    split_lookback: Annotated[
        int | None, typer.Option(metavar="N", help="Open splits while packing [default: 10].")
    ] = None,
    split_open_cost: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Minimum weight of a file [default: 4MB].")
    ] = None,
    prune_with: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE[@REF] [where EXPR]|FILE",
            help="Skip what has no partner in a table or file (--on).",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="a=b,c", help="Columns of the table and their partners."),
    ] = None,
    prune_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most bytes of keys; 0 for no limit [default: 8MB]."),
    ] = None,
    prune_overflow: Annotated[
        str | None,
        typer.Option(metavar="|".join(_OVERFLOWS), help="If there are more keys [default: range]."),
    ] = None,
    matching: Annotated[
        bool, typer.Option("--matching", help="Return only rows with a partner.")
    ] = False,
    no_prune: Annotated[
        bool, typer.Option("--no-prune", help="Skip no files because of --prune-with.")
    ] = False,
    output: OutputPath = None,
    output_format: OutputFormat = None,
    replace_output: ReplaceOutput = False,
    branch: Branch = "main",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on reading what is appended or changed.")
    ] = False,
    state: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder that keeps the position.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="table|latest|latest-exclusive|earliest",
            help="Where a new state starts [default: table; latest-exclusive without --state].",
        ),
    ] = None,
    start_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start with the first snapshot since TIME.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end.")] = False,
    until: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME|REF", help="When to end.")
    ] = None,
    max_epochs: Annotated[int | None, typer.Option(metavar="N", help="End after N epochs.")] = None,
    epoch_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of an epoch [default: 1GB].")
    ] = None,
    epoch_markers: Annotated[
        bool, typer.Option("--epoch-markers", help="Write a JSON line after each epoch.")
    ] = False,
    non_append: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_NON_APPEND), help="Snapshots that are not appends [default: skip]."
        ),
    ] = None,
    on_gap: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_ON_GAP), help="If unread snapshots have expired [default: fail]."
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_SCHEMAS),
            help="Follow the table's schema or pin it [default: follow].",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="|".join(_ORDERS), help="Order of the splits [default: fifo]."),
    ] = None,
    watermark_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with the time of a row.")
    ] = None,
    watermark_unit: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_TIME_UNITS), help="Its unit, if it is a long [default: us]."
        ),
    ] = None,
    monitor_interval: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time between two looks [default: 60s].")
    ] = None,
    max_planning_snapshots: Annotated[
        int | None, typer.Option(metavar="N", help="Snapshots to plan at once [default: 100].")
    ] = None,
    max_planning_failures: Annotated[
        int | None,
        typer.Option(metavar="N", help="Failed looks in a row; -1 for any [default: 3]."),
    ] = None,
    max_pending_splits: Annotated[
        int | None, typer.Option(metavar="N", help="Pending splits at which looking pauses.")
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Let expire keep unread snapshots, by a branch."),
    ] = None,
    consumer_ttl: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="End that when the branch's head is this old [default: 30d]."
        ),
    ] = None,
    metrics_file: Annotated[
        str | None, typer.Option(metavar="PATH", help="Write metrics for node_exporter.")
    ] = None,
    wait: Wait = None,
    status: Annotated[
        bool, typer.Option("--status", help="Show position and lag; read no data.")
    ] = False,
) -> Outcome:
    """Read a table, or what changed since a snapshot."""
    given = dict(locals())
    from lake.core.read.scan.plan import ScanOptions

    key_options = _key_options(given)
    if key is not None and not changes:
        raise InvalidRequestError("--key needs --changes")
    if snapshot is not None and changes:
        raise InvalidRequestError("--changes contradicts --snapshot")
    if follow:
        return _follow(context, given, key_options)
    _refuse_without_follow(given)
    reads = not plan_only or output is not None or replace_output
    target = output_of(context, output, output_format, replace_it=replace_output) if reads else None
    session = session_of(context)
    options = ScanOptions(
        snapshot=snapshot,
        start=from_snapshot,
        inclusive=inclusive,
        end=to_snapshot,
        branch=branch,
        where=where,
        select=parse_names(select),
        limit=limit,
        case_sensitive=not ignore_case,
        split_size=_size(split_size),
        split_lookback=split_lookback,
        split_open_cost=_size(split_open_cost),
    )
    if changes:
        return _changes(session, given, options, key_options, target)
    return _scan(session, table, options, key_options, target, plan_only=plan_only)


def _scan(
    session: Session,
    name: str,
    options: ScanOptions,
    key_options: KeyOptions | None,
    target: Output | None,
    *,
    plan_only: bool,
) -> Outcome:
    from lake.core.read.scan.execute import describe, preview, write
    from lake.core.read.scan.plan import plan_scan, scan_schema

    table = session.table(name)
    with _keys(session, table, key_options, lambda: scan_schema(table, options)) as keys:
        plan = plan_scan(table, options, keys)
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


def _key_options(given: Mapping[str, Any]) -> KeyOptions | None:
    """Return the options of --prune-with; None without it."""
    source = given["prune_with"]
    if source is None:
        for name in _PRUNE_ONLY:
            if given[name] not in (None, False):
                raise InvalidRequestError(f"--{name.replace('_', '-')} needs --prune-with")
        return None
    from lake.core.read.scan.partner_keys import KeyOptions, Overflow

    if given["on"] is None:
        raise InvalidRequestError("--prune-with needs --on", hint="--on store_id=id")
    overflow = given["prune_overflow"] or "range"
    return KeyOptions(
        source=source,
        on=[_pair(text) for text in parse_names(given["on"]) or ()],
        limit_bytes=_size(given["prune_limit"] or _PRUNE_LIMIT) or 0,
        overflow=Overflow(parse_choice(overflow, "--prune-overflow", _OVERFLOWS)),
        matching=given["matching"],
        prune=not given["no_prune"],
        case_sensitive=not given["ignore_case"],
    )


def _pair(text: str) -> tuple[str, str]:
    """Return a column of the table and its partner; a name without ``=`` is both."""
    left, equals, right = text.partition("=")
    left, right = left.strip(), right.strip() if equals else left.strip()
    if not left or not right or "=" in right:
        raise InvalidRequestError(f"--on takes COLUMN=COLUMN, not {text!r}")
    return left, right


def _changes(
    session: Session,
    given: Mapping[str, Any],
    options: ScanOptions,
    key_options: KeyOptions | None,
    target: Output | None,
) -> Outcome:
    from lake.core.read.changelog.execute import describe, preview, write
    from lake.core.read.changelog.plan import plan_changelog

    table = session.table(given["table"])
    with _keys(session, table, key_options, lambda: table.schema) as keys:
        plan = plan_changelog(table, options, parse_names(given["key"]) or (), keys)
        if given["plan_only"]:
            return describe(plan)
        if target is None:
            return preview(plan)
        return write(session, plan, target)


# Continuous scans


def _refuse_without_follow(given: Mapping[str, Any]) -> None:
    for name in _FOLLOW_ONLY:
        if given[name] not in (None, False):
            raise InvalidRequestError(f"--{name.replace('_', '-')} needs --follow")


def _follow(context: typer.Context, given: Mapping[str, Any], keys: KeyOptions | None) -> Outcome:
    """Run a continuous scan, or show its plan or its state."""
    from lake.core.read.continuous.describe import describe
    from lake.core.read.continuous.execute import follow
    from lake.core.read.continuous.status import status

    options = replace(_follow_options(given, _follow_output(context, given)), prune_with=keys)
    table = given["table"]
    if given["plan_only"] and given["status"]:
        raise InvalidRequestError("--plan contradicts --status")
    if given["status"] and options.state is None:
        raise InvalidRequestError("--status needs --state")
    session = session_of(context)
    if given["plan_only"]:
        return describe(session, table, options)
    if given["status"]:
        return status(session, table, options)
    if not options.once:
        announce_warnings(context, session)
    return follow(session, table, options)


def _follow_output(context: typer.Context, given: Mapping[str, Any]) -> Output | None:
    """Return the folder or the stream for the rows; None if no rows are read."""
    from lake.core.read.exports.destinations import output_folder

    path = given["output"]
    if path not in (None, "-"):
        _check_format(given["output_format"])
        return output_folder(path, given["output_format"])
    if given["plan_only"] or given["status"]:
        return None
    return output_of(context, "-", given["output_format"], replace_it=False)


def _follow_options(given: Mapping[str, Any], output: Output | None) -> FollowOptions:
    """Return the options of a continuous scan as typed values."""
    from lake.core.base.units import parse_time_ms
    from lake.core.read.continuous.options import (
        FollowOptions,
        NonAppend,
        OnGap,
        Order,
        SchemaMode,
        TimeUnit,
        parse_strategy,
    )
    from lake.core.read.scan.plan import ScanOptions

    if given["replace_output"]:
        raise InvalidRequestError("--replace contradicts --follow")
    scan = ScanOptions(
        snapshot=given["snapshot"],
        end=given["to_snapshot"],
        branch=given["branch"],
        where=given["where"],
        select=parse_names(given["select"]),
        limit=given["limit"],
        case_sensitive=not given["ignore_case"],
        split_size=_size(given["split_size"]),
        split_lookback=given["split_lookback"],
        split_open_cost=_size(given["split_open_cost"]),
    )
    chosen = {
        "starting": _parsed(given["start"], parse_strategy),
        "start_at_ms": _parsed(given["start_at"], parse_time_ms),
        "order": _choice(given["order"], "--order", Order, _ORDERS),
        "watermark_unit": _choice(
            given["watermark_unit"], "--watermark-unit", TimeUnit, _TIME_UNITS
        ),
        "non_append": _choice(given["non_append"], "--non-append", NonAppend, _NON_APPEND),
        "on_gap": _choice(given["on_gap"], "--on-gap", OnGap, _ON_GAP),
        "schema": _choice(given["schema"], "--schema", SchemaMode, _SCHEMAS),
        "monitor_interval_ms": _parsed(given["monitor_interval"], parse_duration_ms),
        "epoch_bytes": _parsed(given["epoch_size"], parse_size),
        "until": _parsed(given["until"], _until),
        "consumer_ttl_ms": _parsed(given["consumer_ttl"], parse_duration_ms),
        "wait_ms": given["wait"],
        "metrics_path": given["metrics_file"],
        **{
            name: given[name]
            for name in (
                *("max_planning_snapshots", "max_planning_failures", "max_pending_splits"),
                *("state", "watermark_column", "max_epochs", "consumer"),
            )
        },
    }
    return FollowOptions(
        scan=scan,
        output=output,
        start=given["from_snapshot"],
        inclusive=given["inclusive"],
        changes=given["changes"],
        key=tuple(parse_names(given["key"]) or ()),
        once=given["once"],
        epoch_markers=given["epoch_markers"],
        **{name: value for name, value in chosen.items() if value is not None},
    )


def _parsed(text: str | None, parse: Callable[[str], T]) -> T | None:
    return None if text is None else parse(text)


def _choice(
    text: str | None, option: str, kind: Callable[[str], T], allowed: Sequence[str]
) -> T | None:
    return None if text is None else kind(parse_choice(text, option, allowed))


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


def output_of(
    context: typer.Context, path: str | None, format_name: str | None, *, replace_it: bool
) -> Output | None:
    """Return the file, folder or stream for rows; None for a preview, which only a terminal and JSON get.

    Raises:
        InvalidRequestError: the options contradict each other.
    """
    from lake.core.read.exports.destinations import output_to

    _check_format(format_name)
    if path not in (None, "-"):
        return output_to(path, format_name, replace=replace_it)
    if replace_it:
        raise InvalidRequestError(
            f"--replace {'contradicts --output -' if path else 'needs --output'}"
        )
    if context.obj.as_json:
        if path:
            raise InvalidRequestError("--json and --output - both write to standard output")
        if format_name:
            raise InvalidRequestError("--output-format needs --output")
        return None
    if not path and not format_name:
        if sys.stdout.isatty():
            return None
        format_name = "tsv"
    return _standard_output(context, format_name)


def _standard_output(context: typer.Context, format_name: str | None) -> Output:
    """Return standard output for rows; the summary then goes to standard error."""
    from lake.core.read.exports.destinations import output_stream

    if sys.__stdout__ is None:
        raise InvalidRequestError("standard output is closed")
    context.obj.rows_on_stdout = True
    return output_stream(sys.stdout.buffer, format_name)


def _check_format(format_name: str | None) -> None:
    if format_name is not None and format_name not in EXPORT_FORMATS:
        raise InvalidRequestError(
            f"--output-format {format_name!r} is not one of {', '.join(EXPORT_FORMATS)}"
        )


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text.strip() == "0" else parse_size(text)
