"""`lake create`: create an empty table."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument
from lake.commands.parsing import parse_choice, parse_names, parse_pairs
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

FORMAT_VERSIONS = ("1", "2", "3")


def create(
    context: typer.Context,
    table: TableArgument,
    columns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COLUMN...", help="Columns, each as 'name type' or 'name type not null'."
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE|NS.T", help="Take the columns of a file or table."),
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(metavar="TERMS", help='Partitioning, e.g. "day(ts), bucket(16, id)".'),
    ] = None,
    sort_by: Annotated[
        str | None, typer.Option(metavar="TERMS", help='Sort order, e.g. "a desc, b".')
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Identifier fields; they become not null."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="K=V", help="Table property; repeatable."),
    ] = None,
    format_version: Annotated[
        str | None, typer.Option(metavar="1|2|3", help="Format version [default: 2].")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave an existing table as it is.")
    ] = False,
    dry_run: DryRun = False,
) -> Outcome:
    """Create an empty table.

    The types are Iceberg's: int, long, float, double, boolean, string, binary, date, time,
    timestamp, timestamptz, decimal(9, 2), uuid, fixed(16), list<...>, map<..., ...> and
    struct<name: type, ...>.
    """
    from lake.core.load.ingest.source_columns import schema_of_file
    from lake.core.maintain.definition.create import TableDefinition, execute, plan_create

    pairs = parse_pairs(properties or [], "--property")
    if format_version is not None:
        version = parse_choice(format_version, "--format-version", FORMAT_VERSIONS)
        if pairs.setdefault("format-version", version) != version:
            raise InvalidRequestError("--format-version and --property contradict each other")
    definition = TableDefinition(
        columns=columns or (),
        like=like,
        partition_by=partition_by,
        sort_by=sort_by,
        properties=pairs,
        key=parse_names(key) or (),
        if_not_exists=if_not_exists,
    )
    session = session_of(context)
    plan = plan_create(session, table, definition, schema_of_file, dry_run=dry_run)
    return execute(session, plan, if_not_exists=if_not_exists, dry_run=dry_run)
