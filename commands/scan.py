"""`lake scan`: read a table, or the rows appended or changed between two snapshots."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import EXPORT_FORMATS, Branch, TableArgument, Where
from lake.commands.parsing import parse_names
from lake.core.errors import InvalidRequestError
from lake.core.outcome import Outcome
from lake.core.units import parse_size

if TYPE_CHECKING:
    from lake.core.exports.destinations import Output
    from lake.core.scan.plan import ScanOptions
    from lake.core.session import Session


def scan(
    context: typer.Context,
    table: TableArgument,
    snapshot: Annotated[
        str | None, typer.Option(metavar="REF", help="Snapshot to read: id, tag, branch or @TIME.")
    ] = None,
    from_snapshot: Annotated[
        str | None, typer.Option(metavar="REF", help="Read only rows appended after this snapshot.")
    ] = None,
    inclusive: Annotated[
        bool, typer.Option("--inclusive", help="Include the rows of --from-snapshot itself.")
    ] = False,
    to_snapshot: Annotated[
        str | None, typer.Option(metavar="REF", help="Read up to this snapshot, inclusive.")
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
    output: Annotated[
        str | None, typer.Option(metavar="PATH|-", help="Write to a file, a folder, or stdout.")
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(EXPORT_FORMATS), help="Format [default: from the output's name]."
        ),
    ] = None,
    replace_output: Annotated[
        bool, typer.Option("--replace", help="Replace an existing output.")
    ] = False,
    branch: Branch = "main",
) -> Outcome:
    """Read a table, or the rows appended or changed between two snapshots."""
    from lake.core.scan.execute import describe, preview, write
    from lake.core.scan.plan import ScanOptions, plan_scan

    if key is not None and not changes:
        raise InvalidRequestError("--key needs --changes")
    if snapshot is not None and changes:
        raise InvalidRequestError("--changes contradicts --snapshot")
    target = _output(context, output, output_format, replace_it=replace_output)
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
        return _changes(session, table, options, key, target, plan_only=plan_only)
    plan = plan_scan(session.table(table), options)
    if plan_only:
        return describe(plan)
    if target is None:
        return preview(plan)
    return write(session, plan, target)


def _changes(
    session: Session,
    table: str,
    options: ScanOptions,
    key: str | None,
    target: Output | None,
    *,
    plan_only: bool,
) -> Outcome:
    from lake.core.changelog.execute import describe, preview, write
    from lake.core.changelog.plan import plan_changelog

    plan = plan_changelog(session.table(table), options, parse_names(key) or ())
    if plan_only:
        return describe(plan)
    if target is None:
        return preview(plan)
    return write(session, plan, target)


def _output(
    context: typer.Context, path: str | None, format_name: str | None, *, replace_it: bool
) -> Output | None:
    from lake.core.exports.destinations import output_stream, output_to

    if format_name is not None and format_name not in EXPORT_FORMATS:
        raise InvalidRequestError(
            f"--output-format {format_name!r} is not one of {', '.join(EXPORT_FORMATS)}"
        )
    if path is None:
        if format_name is not None or replace_it:
            raise InvalidRequestError("--output-format and --replace need --output")
        return None
    if path != "-":
        return output_to(path, format_name, replace=replace_it)
    if replace_it:
        raise InvalidRequestError("--replace contradicts --output -")
    if context.obj.as_json:
        raise InvalidRequestError("--json and --output - both write to standard output")
    if sys.__stdout__ is None:
        raise InvalidRequestError("standard output is closed")
    # Standard output contains the rows only, without a summary.
    context.obj.quiet = True
    return output_stream(sys.stdout.buffer, format_name)


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text.strip() == "0" else parse_size(text)
