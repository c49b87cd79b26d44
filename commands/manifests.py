"""`lake manifests`: write a branch's manifests again, fewer of them and clustered by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag, given
from lake.commands.options import ExplainedRun, names, require_preview, size
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.spec.expressions.conditions import Condition
    from lake.core.table.catalogs.catalog import Table


def _condition(text: str) -> Condition:
    from lake.core.maintain.manifest_rewrite.conditions import parse_rewrite_condition

    return parse_rewrite_condition(text)


@dataclass(frozen=True, kw_only=True)
class WhichManifests:
    """Which manifests, and how."""

    target_size: Annotated[
        int | None, size("Size of new manifests [the table's property, else 8MB].")
    ] = None
    spec_id: Annotated[int | None, Flag("Rewrite manifests of this spec only.", "N")] = None
    sort_by: Annotated[
        Sequence[str], names("Partition fields to cluster by [all, in their order].", "NAMES")
    ] = ()
    rewrite_all: Annotated[bool, Flag("Also rewrite manifests that are well clustered.")] = False
    condition: Annotated[
        object,
        Flag(
            "Rewrite only if this holds, e.g. 'manifests > 100 or overlap > 2'.",
            "EXPR",
            name="--if",
            parse=_condition,
        ),
    ] = None


@for_each_table()
def manifests(
    context: typer.Context, table: TablesArgument, which: WhichManifests, run: ExplainedRun
) -> Outcome:
    """Rewrite the manifests, fewer and clustered by partition.

    A scan of one partition then reads fewer manifests. No data file is read or written. Manifests
    that other writers add meanwhile stay as they are.
    """
    from lake.core.maintain.manifest_rewrite.execute import execute, preview
    from lake.core.maintain.manifest_rewrite.plan import ManifestOptions, plan_manifests
    from lake.core.transaction.locks.table_lock import with_table_lock

    require_preview(explain=run.explain, is_preview=run.dry_run)
    report_commits(context, run.on_commit)
    options = ManifestOptions(branch=run.branch, **given(which))
    session = session_of(context)
    loaded = session.table(table)
    if run.dry_run:
        plan = plan_manifests(loaded, options)
        return preview(plan, explain=run.explain, verbose=session.settings.verbose)

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, options, operation_id)

    return with_table_lock(
        session,
        loaded,
        work,
        command="manifests",
        branch=run.branch,
        wait_ms=run.wait,
        repeated=True,
    )
