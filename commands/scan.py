"""`lake scan`: read a table, or what was appended between two snapshots."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, TableArgument, Where
from lake.commands.parsing import parse_names
from lake.core.errors import InvalidRequestError, RefusedError
from lake.core.outcome import Outcome
from lake.core.rows.sinks import FORMATS
from lake.core.scan.execute import Output, describe, output_to, preview, write
from lake.core.scan.plan import ScanOptions, plan_scan
from lake.core.scan.splits import SplitOptions
from lake.core.units import parse_size


def scan(
    context: typer.Context,
    table: TableArgument,
    snapshot: Annotated[
        str | None, typer.Option(metavar="REF", help="Id, tag, branch or @TIME to read.")
    ] = None,
    from_snapshot: Annotated[
        str | None, typer.Option(metavar="REF", help="Only what was appended after it.")
    ] = None,
    inclusive: Annotated[
        bool, typer.Option("--inclusive", help="With what --from-snapshot itself appended.")
    ] = False,
    to_snapshot: Annotated[
        str | None, typer.Option(metavar="REF", help="Up to this snapshot, inclusive.")
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", hidden=True)] = False,
    key: Annotated[str | None, typer.Option("--key", hidden=True)] = None,
    where: Where = None,
    select: Annotated[str | None, typer.Option(metavar="a,b.c", help="Columns to read.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most N rows.")] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", help="Column names in any case.")
    ] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Plan only, read no data.")] = False,
    split_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of a split.")] = "128MB",
    split_lookback: Annotated[
        int, typer.Option(metavar="N", help="Splits kept open while packing.")
    ] = 10,
    split_open_cost: Annotated[
        str, typer.Option(metavar="SIZE", help="Least that a file counts.")
    ] = "4MB",
    output: Annotated[
        str | None, typer.Option(metavar="PATH|-", help="A file, a folder, or stdout.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option(metavar="|".join(FORMATS), help="Else by the output's name.")
    ] = None,
    replace_output: Annotated[
        bool, typer.Option("--replace", help="Replace an existing output.")
    ] = False,
    branch: Branch = "main",
) -> Outcome:
    """Read a table, or what was appended between two snapshots.

    Example: lake scan db.events --where "id > 5" --select id,name --output events.csv
    """
    if changes or key is not None:
        raise RefusedError("--changes is not available yet")
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
        splits=SplitOptions(
            size=parse_size(split_size),
            lookback=split_lookback,
            open_cost=0 if split_open_cost.strip() == "0" else parse_size(split_open_cost),
        ),
    )
    plan = plan_scan(session.table(table), options)
    if plan_only:
        return describe(plan)
    if target is None:
        return preview(plan)
    return replace(write(session, plan, target), details=())


def _output(
    context: typer.Context, path: str | None, format_name: str | None, *, replace_it: bool
) -> Output | None:
    if format_name is not None and format_name not in FORMATS:
        raise InvalidRequestError(
            f"--output-format {format_name!r} is none of {', '.join(FORMATS)}"
        )
    if path is None:
        if format_name is not None or replace_it:
            raise InvalidRequestError("--output-format and --replace need --output")
        return None
    if path != "-":
        return output_to(path, format_name, replace=replace_it)
    if context.obj.as_json:
        raise InvalidRequestError("--json and --output - both want standard output")
    context.obj.quiet = True
    return Output(format_name or "csv", stream=sys.stdout.buffer)
