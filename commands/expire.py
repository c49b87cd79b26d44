"""`lake expire`: remove old snapshots and delete the files that only they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag
from lake.commands.options import (
    ExplainedTableRun,
    OnCommit,
    UnsafeRetention,
    absolute_time,
    duration,
    moment,
    require_preview,
)
from lake.commands.parsing import Moment
from lake.core.base.outcome import Outcome
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.table.snapshots.ancestry import resolve

if TYPE_CHECKING:
    from lake.core.maintain.expiration.plan import ExpirationPlan
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, kw_only=True)
class WhichSnapshots:
    """Which snapshots."""

    older_than: Annotated[Moment | None, moment("Expire snapshots older than this.", "5d|TIME")] = (
        None
    )
    retain_last: Annotated[int | None, Flag("Keep at least N snapshots of each branch.", "N")] = (
        None
    )
    snapshot: Annotated[
        tuple[str, ...], Flag("Expire this snapshot; repeatable.", "REF", callback=absolute_time)
    ] = ()
    branch: Annotated[str | None, Flag("Expire snapshots of this branch only.", "NAME")] = None
    keep_checkpoints: Annotated[
        int,
        duration(
            "Keep the snapshots that Flink jobs with a commit in this period need to restore [7d]."
        ),
    ] = 7 * 24 * 3_600_000
    unsafe_retention: UnsafeRetention = False

    def retention(self, now_ms: int) -> RetentionOptions:
        """Return the options of the expiration, without the named snapshots, at a time in ms since 1970.

        Raises:
            InvalidRequestError: a value is not allowed.
        """
        return RetentionOptions(
            older_than=self.older_than.at(now_ms) if self.older_than else None,
            retain_last=self.retain_last,
            unsafe_retention=self.unsafe_retention,
            branch=self.branch,
            keep_checkpoints=self.keep_checkpoints,
        )


@dataclass(frozen=True, kw_only=True)
class WhatIsRemoved:
    """What is removed."""

    keep_files: Annotated[bool, Flag("Change the metadata only; delete no files.")] = False
    clean_metadata: Annotated[bool, Flag("Also remove unused schemas and specs.")] = False


@for_each_table("--snapshot")
def expire(
    context: typer.Context,
    table: TablesArgument,
    which: WhichSnapshots,
    what: WhatIsRemoved,
    run: ExplainedTableRun,
    *,
    on_commit: OnCommit = None,
) -> Outcome:
    """Remove old snapshots and the files only they use."""
    from lake.core.maintain.expiration.execute import execute, file_details, preview
    from lake.core.maintain.expiration.journal_recovery import JournalRecovery
    from lake.core.maintain.expiration.plan import plan_expiration
    from lake.core.transaction.garbage.file_deletion import Removed
    from lake.core.transaction.locks.table_lock import with_table_lock
    from lake.core.transaction.store_clock import require_clock

    require_preview(explain=run.explain, is_preview=run.dry_run)
    report_commits(context, on_commit)
    session = session_of(context)
    now_ms = session.clock.now_ms()
    requested = which.retention(now_ms)
    loaded = session.table(table)

    def planned(now: Table) -> ExpirationPlan:
        options = replace(requested, snapshot_ids=_snapshots(now, which.snapshot))
        return plan_expiration(session, now, options, **vars(what), now_ms=now_ms)

    def with_files(outcome: Outcome, plan: ExpirationPlan) -> Outcome:
        if not session.settings.verbose:
            return outcome
        return replace(outcome, details=[*outcome.details, file_details(plan)])

    def work(now: Table, operation_id: str) -> Outcome:
        require_clock(session, now)
        if which.snapshot and not what.keep_files:
            # A killed run may have removed these snapshots already, and left their files.
            JournalRecovery(session, now).finish(now, Removed())
        plan = planned(now)
        return with_files(execute(session, plan, operation_id), plan)

    if run.dry_run:
        plan = planned(loaded)
        verbose = session.settings.verbose
        return with_files(preview(plan, explain=run.explain, verbose=verbose), plan)
    return with_table_lock(
        session,
        loaded,
        work,
        command="expire",
        branch=which.branch,
        wait_ms=run.wait,
        repeated=True,
    )


def _snapshots(table: Table, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(resolve(table.metadata, name).snapshot_id for name in names))
