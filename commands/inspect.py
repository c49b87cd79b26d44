"""`lake inspect`: show or write one of Iceberg's metadata tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import TableArgument, Where, absolute_time, names
from lake.commands.outputs import OutputOptions, output_of
from lake.commands.parsing import parse_choice
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
    *,
    target: OutputOptions,
    branch: Annotated[str | None, Flag("Branch to read [default: main].", "NAME")] = None,
    snapshot: Annotated[
        str | None,
        Flag("Snapshot to read: id, tag, branch or @TIME.", "REF", callback=absolute_time),
    ] = None,
    where: Where = None,
    select: Annotated[Sequence[str] | None, names("Columns to show.", "a,b")] = None,
    limit: Annotated[int | None, Flag("Show at most N rows.", "N")] = None,
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
        select=select,
        limit=limit,
    )
    output = output_of(context, target)
    session = session_of(context)
    return inspect_table(session, session.table(table), options, output)
