"""`lake alter`: change a table's columns, partitioning, sort order, properties and format version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag, given
from lake.commands.options import TableArgument, WholeTableRun
from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.base.choices import FORMAT_VERSIONS
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns."""

    add_column: Annotated[
        tuple[str, ...], Flag("Add a column, or with a.b a field of a; repeatable.", "'NAME TYPE'")
    ] = ()
    rename_column: Annotated[tuple[str, ...], Flag("Rename a column; repeatable.", "OLD=NEW")] = ()
    drop_column: Annotated[tuple[str, ...], Flag("Drop a column; repeatable.", "NAME")] = ()
    widen: Annotated[
        tuple[str, ...], Flag("Give a column a wider type; repeatable.", "NAME=TYPE")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layout of new files."""

    partition_by: Annotated[
        str | None, Flag("Partition new files so; '' for not at all.", "TERMS")
    ] = None
    sort_by: Annotated[str | None, Flag("Sort new files so; '' for not at all.", "TERMS")] = None


@dataclass(frozen=True, kw_only=True)
class Properties:
    """Properties and format."""

    set_properties: Annotated[
        tuple[str, ...], Flag("Set a table property; repeatable.", "K=V", name="--set")
    ] = ()
    unset: Annotated[tuple[str, ...], Flag("Remove a table property; repeatable.", "K")] = ()
    format_version: Annotated[str | None, Flag("Upgrade the table to a format version.", "2|3")] = (
        None
    )
    no_other_catalog: Annotated[
        bool,
        Flag(
            "Record that no other catalog contains the table: metadata files that are not in its history no "
            "longer prevent deletions."
        ),
    ] = False


def alter(
    context: typer.Context,
    table: TableArgument,
    columns: Columns,
    layout: Layout,
    properties: Properties,
    run: WholeTableRun,
) -> Outcome:
    """Change a table's columns, partitioning, order, properties or format.

    All changes are made in one commit, and no file is rewritten. Columns to change are named as
    before the command, those of new files and properties as after it. Types are written as for
    lake create.
    """
    from lake.core.maintain.definition.alter import Alteration, execute, plan_alter
    from lake.core.maintain.definition.schema_edits import SchemaEdits
    from lake.core.transaction.locks.table_lock import with_table_lock

    version = properties.format_version
    if version is not None:
        parse_choice(version, "--format-version", FORMAT_VERSIONS)
    alteration = Alteration(
        columns=SchemaEdits(
            add=columns.add_column,
            rename=parse_pairs(columns.rename_column, "--rename-column"),
            drop=columns.drop_column,
            widen=parse_pairs(columns.widen, "--widen"),
        ),
        set_properties=parse_pairs(properties.set_properties, "--set"),
        unset=properties.unset,
        format_version=int(version) if version else None,
        no_other_catalog=properties.no_other_catalog,
        **given(layout),
    )
    _check_maintenance(table, alteration.set_properties)
    session = session_of(context)
    loaded = session.table(table)

    def work(now: Table, _: str) -> Outcome:
        return execute(
            session, plan_alter(session, now, alteration), alteration, dry_run=run.dry_run
        )

    if run.dry_run:
        return work(loaded, "")
    return with_table_lock(session, loaded, work, command="alter", wait_ms=run.wait)


def _check_maintenance(table: str, properties: Mapping[str, str]) -> None:
    """Check properties for `lake maintain`, which would do nothing to a table with one that is not allowed.

    Raises:
        InvalidRequestError: one has an unknown name or a value that is not allowed.
        RefusedError: one sets an option that only a policy file may set.
    """
    from lake.core.spec.properties.table_properties import MAINTENANCE_PREFIX

    if not any(name.startswith(MAINTENANCE_PREFIX) for name in properties):
        return
    from lake.commands.actions import choices
    from lake.core.maintain.policies.policy import Policy

    Policy().of(table, properties, choices())
