"""`lake inspect`: show or write one of Iceberg's metadata tables."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import (
    OutputFormat,
    OutputPath,
    ReplaceOutput,
    TableArgument,
    Where,
    absolute_time,
)
from lake.commands.parsing import parse_choice, parse_names
from lake.commands.scan import output_of
from lake.core.base.outcome import Outcome

_KINDS = (
    *("snapshots", "refs", "history", "metadata-log", "properties"),
    *("files", "data-files", "delete-files", "entries", "manifests", "partitions", "deletes"),
)


def inspect(
    context: typer.Context,
    table: TableArgument,
    metadata_table: Annotated[
        str, typer.Argument(metavar="|".join(_KINDS), help="Metadata table.", show_default=False)
    ],
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Branch to read [default: main].")
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="Snapshot to read: id, tag, branch or @TIME.",
        ),
    ] = None,
    where: Where = None,
    select: Annotated[str | None, typer.Option(metavar="a,b", help="Columns to show.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Show at most N rows.")] = None,
    output: OutputPath = None,
    output_format: OutputFormat = None,
    replace_output: ReplaceOutput = False,
) -> Outcome:
    """Show or write one of Iceberg's metadata tables.

    Files, entries, manifests, partitions and deletes are those of one snapshot. No JVM is started.
    """
    from lake.core.read.inspection.inspect import inspect_table
    from lake.core.read.inspection.metadata_tables import InspectOptions

    options = InspectOptions(
        kind=parse_choice(metadata_table, "the metadata table", _KINDS),
        branch=branch,
        snapshot=snapshot,
        where=where,
        select=parse_names(select),
        limit=limit,
    )
    target = output_of(context, output, output_format, replace_it=replace_output)
    session = session_of(context)
    return inspect_table(session, session.table(table), options, target)
