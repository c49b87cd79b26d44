"""`lake expire`: remove old snapshots and delete the files that only they use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import DryRun, OnCommit, TableArgument, Wait, absolute_time
from lake.commands.parsing import older_than_ms
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.table.snapshots.ancestry import resolve

if TYPE_CHECKING:
    from lake.core.maintain.expiration.plan import ExpirationPlan
    from lake.core.table.catalogs.catalog import Table


def expire(
    context: typer.Context,
    table: TableArgument,
    older_than: Annotated[
        str | None, typer.Option(metavar="5d|TIME", help="Expire snapshots older than this.")
    ] = None,
    retain_last: Annotated[
        int | None, typer.Option(metavar="N", help="Keep at least N snapshots of each branch.")
    ] = None,
    snapshot: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REF", callback=absolute_time, help="Expire this snapshot; repeatable."
        ),
    ] = None,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Change the metadata only; delete no files.")
    ] = False,
    clean_metadata: Annotated[
        bool, typer.Option("--clean-metadata", help="Also remove unused schemas and specs.")
    ] = False,
    keep_checkpoints: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Keep the snapshots that Flink jobs with a commit in this period need to restore.",
        ),
    ] = "7d",
    unsafe_retention: Annotated[
        bool, typer.Option("--unsafe-retention", help="Allow --older-than of less than 24 hours.")
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="NAME", help="Expire snapshots of this branch only."),
    ] = None,
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Remove old snapshots and the files only they use."""
    from lake.core.maintain.expiration.execute import execute, file_details, preview
    from lake.core.maintain.expiration.journal_recovery import JournalRecovery
    from lake.core.maintain.expiration.plan import plan_expiration
    from lake.core.transaction.garbage.file_deletion import Removed
    from lake.core.transaction.locks.store_clock import require_clock
    from lake.core.transaction.locks.table_lock import with_table_lock

    report_commits(context, on_commit)
    session = session_of(context)
    named = snapshot or []
    requested = RetentionOptions(
        older_than_ms=older_than_ms(older_than, session.clock.now_ms()),
        retain_last=retain_last,
        unsafe=unsafe_retention,
        branch=branch,
        keep_checkpoints_ms=parse_duration_ms(keep_checkpoints),
    )
    loaded = session.table(table)

    def planned(now: Table) -> ExpirationPlan:
        options = replace(requested, snapshot_ids=_snapshots(now, named))
        return plan_expiration(
            session, now, options, clean_metadata=clean_metadata, keep_files=keep_files
        )

    def with_files(outcome: Outcome, plan: ExpirationPlan) -> Outcome:
        if not session.settings.verbose:
            return outcome
        return replace(outcome, details=[*outcome.details, file_details(plan)])

    def work(now: Table, operation_id: str) -> Outcome:
        require_clock(session, now)
        if named and not keep_files:
            # A killed run may have removed these snapshots already, and left their files.
            JournalRecovery(session, now).finish(now, Removed())
        plan = planned(now)
        return with_files(execute(session, plan, operation_id), plan)

    if dry_run:
        plan = planned(loaded)
        return with_files(preview(plan), plan)
    return with_table_lock(
        session, loaded, work, command="expire", branch=branch, wait_ms=wait, repeated=True
    )


def _snapshots(table: Table, names: list[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(resolve(table.metadata, name).snapshot_id for name in names))
