"""`lake manifests`: write a branch's manifests again, fewer of them and clustered by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument, Wait
from lake.commands.parsing import parse_names
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_size

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


def manifests(
    context: typer.Context,
    table: TableArgument,
    target_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Size of new manifests [the table's property, else 8MB]."
        ),
    ] = None,
    spec_id: Annotated[
        int | None, typer.Option(metavar="N", help="Rewrite manifests of this spec only.")
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Partition fields to cluster by [all, in their order]."),
    ] = None,
    rewrite_all: Annotated[
        bool, typer.Option("--rewrite-all", help="Also rewrite manifests that are well clustered.")
    ] = False,
    condition: Annotated[
        str | None,
        typer.Option(
            "--if",
            metavar="EXPR",
            help="Rewrite only if this holds, e.g. 'manifests > 100 or overlap > 2'.",
        ),
    ] = None,
    branch: Branch = "main",
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Rewrite the manifests, fewer and clustered by partition.

    A scan of one partition then reads fewer manifests. No data file is read or written. Manifests
    that other writers add meanwhile stay as they are.
    """
    from lake.core.maintain.manifest_rewrite.conditions import parse_rewrite_condition
    from lake.core.maintain.manifest_rewrite.execute import execute, preview
    from lake.core.maintain.manifest_rewrite.plan import ManifestOptions, plan_manifests
    from lake.core.transaction.locks.table_lock import with_table_lock

    report_commits(context, on_commit)
    options = ManifestOptions(
        branch=branch,
        target_bytes=None if target_size is None else parse_size(target_size),
        spec_id=spec_id,
        sort_by=parse_names(sort_by) or (),
        rewrite_all=rewrite_all,
        condition=None if condition is None else parse_rewrite_condition(condition),
    )
    session = session_of(context)
    loaded = session.table(table)
    if dry_run:
        return preview(plan_manifests(loaded, options))

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, options, operation_id)

    return with_table_lock(
        session, loaded, work, command="manifests", branch=branch, wait_ms=wait, repeated=True
    )
