"""`lake deletes`: list a table's delete files, compact them, or convert equality deletes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import (
    Branch,
    DryRun,
    MaxCommits,
    OnCommit,
    PartialProgress,
    TableArgument,
    Wait,
    Where,
)
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.delete_conversion.plan import DeletePlan
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.commit.work_limits import WorkLimits
    from lake.core.transaction.session import Session


def deletes(
    context: typer.Context,
    table: TableArgument,
    rewrite: Annotated[
        bool,
        typer.Option("--rewrite", help="Replace many position delete files by few, or by vectors."),
    ] = False,
    convert: Annotated[
        bool,
        typer.Option("--convert", help="Convert equality deletes to position deletes or vectors."),
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also count the rows that each delete file deletes.")
    ] = False,
    where: Where = None,
    max_files: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Maximum data files to convert, or delete files to rewrite, in total."
        ),
    ] = None,
    partial_progress: PartialProgress = False,
    max_commits: MaxCommits = None,
    branch: Branch = "main",
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Show a table's delete files and what they apply to.

    A delete file that applies to no data file is dangling: it deletes nothing.
    """
    if rewrite and convert:
        raise InvalidRequestError(
            "--rewrite and --convert exclude each other", hint="run one after the other"
        )
    if exact and (rewrite or convert):
        raise InvalidRequestError("--exact counts rows, and needs neither --rewrite nor --convert")
    limits = {
        "max_files": max_files,
        "partial_progress": partial_progress or None,
        "max_commits": max_commits,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    if rewrite or convert:
        change = _Change(branch, rewrite, where, given)
        report_commits(context, on_commit)
        if dry_run:
            return change.preview(session_of(context), table)
        return change.run(session_of(context), table, wait)
    if dry_run or given or any(option is not None for option in (where, wait, on_commit)):
        raise InvalidRequestError(
            "--where, --max-files, --partial-progress, --max-commits, --dry-run, --wait and --on-commit need "
            "--rewrite or --convert"
        )
    from lake.core.read.inspection.deletes import list_deletes

    session = session_of(context)
    return list_deletes(session.table(table), branch=branch, exact=session if exact else None)


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

    def preview(self, session: Session, table: str) -> Outcome:
        """Show the plan."""
        from lake.core.maintain.delete_conversion.execute import preview

        limits = self._limits()
        return preview(self._plan(session.table(table)), limits)

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
