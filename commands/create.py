"""`lake create`: create an empty table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import DryRun, TableArgument, names
from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.base.choices import FORMAT_VERSIONS
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Definition:
    """Columns and layout."""

    like: Annotated[
        str | None, Flag("Take the columns of a file or table.", "FILE|NS.T", name="--from")
    ] = None
    partition_by: Annotated[
        str | None, Flag('Partitioning, e.g. "day(ts), bucket(16, id)".', "TERMS")
    ] = None
    sort_by: Annotated[str | None, Flag('Sort order, e.g. "a desc, b".', "TERMS")] = None
    key: Annotated[Sequence[str], names("Identifier fields; they become not null.", "COLUMNS")] = ()


@dataclass(frozen=True, kw_only=True)
class Properties:
    """Properties and format."""

    properties: Annotated[
        tuple[str, ...], Flag("Table property; repeatable.", "K=V", name="--property")
    ] = ()
    format_version: Annotated[
        str | None, Flag("Format version [default: 2].", "|".join(FORMAT_VERSIONS))
    ] = None


def create(
    context: typer.Context,
    table: TableArgument,
    columns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COLUMN...", help="Columns, each as 'name type' or 'name type not null'."
        ),
    ] = None,
    *,
    definition: Definition,
    chosen: Properties,
    if_not_exists: Annotated[bool, Flag("Leave an existing table as it is.")] = False,
    dry_run: DryRun = False,
) -> Outcome:
    """Create an empty table.

    The types are Iceberg's: int, long, float, double, boolean, string, binary, date, time,
    timestamp, timestamptz, decimal(9, 2), uuid, fixed(16), list<...>, map<..., ...> and
    struct<name: type, ...>.
    """
    from lake.core.load.ingest.source_columns import schema_of_file
    from lake.core.maintain.definition.create import TableDefinition, execute, plan_create

    properties = parse_pairs(chosen.properties, "--property")
    if chosen.format_version is not None:
        version = parse_choice(chosen.format_version, "--format-version", FORMAT_VERSIONS)
        if properties.setdefault("format-version", version) != version:
            raise InvalidRequestError("--format-version and --property contradict each other")
    table_definition = TableDefinition(
        columns=columns or (),
        properties=properties,
        if_not_exists=if_not_exists,
        **vars(definition),
    )
    session = session_of(context)
    plan = plan_create(session, table, table_definition, schema_of_file, dry_run=dry_run)
    return execute(session, plan, if_not_exists=if_not_exists, dry_run=dry_run)
