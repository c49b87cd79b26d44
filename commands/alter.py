"""`lake alter`: change a table's columns, partitioning, sort order, properties and format version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument, Wait
from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


def alter(
    context: typer.Context,
    table: TableArgument,
    set_properties: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="K=V", help="Set a table property; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="K", help="Remove a table property; repeatable."),
    ] = None,
    add_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME TYPE'", help="Add a column, or with a.b a field of a; repeatable."
        ),
    ] = None,
    rename_column: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Rename a column; repeatable."),
    ] = None,
    drop_column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Drop a column; repeatable.")
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help="Give a column a wider type; repeatable."),
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(metavar="TERMS", help="Partition new files so; '' for not at all."),
    ] = None,
    sort_by: Annotated[
        str | None, typer.Option(metavar="TERMS", help="Sort new files so; '' for not at all.")
    ] = None,
    format_version: Annotated[
        str | None, typer.Option(metavar="2|3", help="Upgrade the table to a format version.")
    ] = None,
    no_other_catalog: Annotated[
        bool,
        typer.Option(
            "--no-other-catalog",
            help="Record that no other catalog contains the table: metadata files that are not in its history no "
            "longer prevent deletions.",
        ),
    ] = False,
    wait: Wait = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Change a table's columns, partitioning, order, properties or format.

    All changes are made in one commit, and no file is rewritten. Columns are named as before the
    command. Types are written as for lake create.
    """
    from lake.core.maintain.definition.alter import Alteration, execute, plan_alter
    from lake.core.maintain.definition.schema_edits import SchemaEdits
    from lake.core.transaction.locks.table_lock import with_table_lock

    version = format_version and parse_choice(format_version, "--format-version", ("1", "2", "3"))
    alteration = Alteration(
        columns=SchemaEdits(
            add=add_column or (),
            rename=parse_pairs(rename_column or [], "--rename-column"),
            drop=drop_column or (),
            widen=parse_pairs(widen or [], "--widen"),
        ),
        set_properties=parse_pairs(set_properties or [], "--set"),
        unset=unset or (),
        partition_by=partition_by,
        sort_by=sort_by,
        format_version=int(version) if version else None,
        no_other_catalog=no_other_catalog,
    )
    session = session_of(context)
    loaded = session.table(table)

    def work(now: Table, _: str) -> Outcome:
        return execute(session, plan_alter(session, now, alteration), alteration, dry_run=dry_run)

    if dry_run:
        return work(loaded, "")
    return with_table_lock(session, loaded, work, command="alter", wait_ms=wait)
