"""`lake deletes`: list a table's delete files, compact them, or convert equality deletes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag, given
from lake.commands.options import (
    ExplainedRun,
    MaxCommits,
    PartialProgress,
    Where,
    require_preview,
)
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.delete_conversion.plan import DeletePlan
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.commit.work_limits import WorkLimits
    from lake.core.transaction.session import Session


@dataclass(frozen=True, kw_only=True)
class WhatToDo:
    """What to do."""

    rewrite: Annotated[bool, Flag("Replace many position delete files by few, or by vectors.")] = (
        False
    )
    convert: Annotated[bool, Flag("Convert equality deletes to position deletes or vectors.")] = (
        False
    )
    exact: Annotated[bool, Flag("Also count the rows that each delete file deletes.")] = False


@dataclass(frozen=True, kw_only=True)
class Work:
    """Amount of work."""

    max_files: Annotated[
        int | None,
        Flag("Maximum data files to convert, or delete files to rewrite, in total.", "N"),
    ] = None
    partial_progress: PartialProgress = False
    max_commits: MaxCommits = None


@for_each_table()
def deletes(
    context: typer.Context,
    table: TablesArgument,
    what: WhatToDo,
    amount: Work,
    run: ExplainedRun,
    *,
    where: Where = None,
) -> Outcome:
    """Show a table's delete files and what they apply to.

    A delete file that applies to no data file is dangling: it deletes nothing.
    """
    if what.rewrite and what.convert:
        raise InvalidRequestError(
            "--rewrite and --convert exclude each other", hint="run one after the other"
        )
    changes = what.rewrite or what.convert
    if what.exact and changes:
        raise InvalidRequestError("--exact counts rows, and needs neither --rewrite nor --convert")
    limits = given(amount)
    require_preview(explain=run.explain, is_preview=run.dry_run)
    if changes:
        change = _Change(run.branch, what.rewrite, where, limits)
        report_commits(context, run.on_commit)
        if run.dry_run:
            return change.preview(session_of(context), table, explain=run.explain)
        return change.run(session_of(context), table, run.wait)
    if limits or where is not None or given(run).keys() - {"branch"}:
        raise InvalidRequestError(
            "--where, --max-files, --partial-progress, --max-commits, --dry-run, --wait and --on-commit need "
            "--rewrite or --convert"
        )
    from lake.core.read.inspection.deletes import list_deletes

    session = session_of(context)
    return list_deletes(
        session.table(table), branch=run.branch, exact=session if what.exact else None
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """A rewrite or a conversion: the branch, which of them, the filter, and the limits of the run."""

    branch: str
    is_rewrite: bool
    where: str | None
    limits: Mapping[str, Any]

    def _limits(self) -> WorkLimits:
        from lake.core.transaction.commit.work_limits import WorkLimits

        limits = WorkLimits(**self.limits)
        if self.is_rewrite and limits.max_files == 1:
            raise InvalidRequestError(
                "--max-files must be > 1 with --rewrite: one file replaces several"
            )
        return limits

    def _plan(self, table: Table, run: str = "") -> DeletePlan:
        from lake.core.maintain.delete_conversion.conversion_plan import plan_conversion
        from lake.core.maintain.delete_conversion.rewrite_plan import plan_rewrite

        if self.is_rewrite:
            return plan_rewrite(table, self.branch, self.where)
        return plan_conversion(table, self.branch, self.where, run)

    def preview(self, session: Session, table: str, *, explain: bool) -> Outcome:
        """Show the plan."""
        from lake.core.maintain.delete_conversion.execute import preview

        limits = self._limits()
        plan = self._plan(session.table(table))
        return preview(plan, limits, explain=explain, verbose=session.settings.verbose)

    def run(self, session: Session, table: str, wait: int | None) -> Outcome:
        """Change the table, unless another maintenance run works on it."""
        from lake.core.maintain.delete_conversion.execute import execute
        from lake.core.transaction.locks.table_lock import with_table_lock

        limits = self._limits()

        def work(now: Table, run: str) -> Outcome:
            plan = partial(self._plan, run=run)
            return execute(session, now, self.branch, run, plan, limits)

        return with_table_lock(
            session,
            session.table(table),
            work,
            command="deletes",
            branch=self.branch,
            wait_ms=wait,
            repeated=True,
        )
