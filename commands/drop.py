"""`lake drop`: drop a table, and delete its files on request."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, IgnoreUnreadable, TableArgument, Wait
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.outcome import Outcome, Status

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


def drop(
    context: typer.Context,
    table: TableArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the files of the table; needs --yes.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete the files; without it, --purge only lists them.")
    ] = False,
    ignore_unreadable: IgnoreUnreadable = False,
    wait: Wait = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Drop a table; its files stay unless they are purged.

    A table that was dropped without --purge comes back with lake register and the location of its
    metadata file, which the command prints.
    """
    from lake.core.maintain.definition import drop as dropping

    if yes and not purge:
        raise InvalidRequestError("--yes needs --purge")
    if ignore_unreadable and not purge:
        raise InvalidRequestError("--ignore-unreadable needs --purge")
    session = session_of(context)
    loaded = session.table(table)
    if dry_run or (purge and not yes):
        plan = dropping.plan_drop(session, loaded, purge=purge, ignore_unreadable=ignore_unreadable)
        return dropping.preview(plan)
    outcome = dropping.drop(
        session, loaded, purge=purge, ignore_unreadable=ignore_unreadable, wait_ms=wait
    )
    if outcome.status in {Status.DONE, Status.PARTIAL}:
        _warn_of_trash(session, loaded)
    return outcome


def _warn_of_trash(session: Session, table: Table) -> None:
    """Warn of files that were moved away: no catalog remembers where they are."""
    from lake.core.maintain.orphans.trash import Trash

    place = Trash.of(table)
    with suppress(LakeError):
        if runs := place.list_runs():
            session.warn(
                f"files that {len(runs)} runs of lake clean moved away stay in {place.folder}; to delete them: "
                f"lake clean {table.identifier} --purge-older-than 0s --location {place.location}"
            )
