"""`lake drop`: drop a table, and delete its files on request."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag, require
from lake.commands.options import IgnoreUnreadable, TableArgument, WholeTableRun
from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome, Status

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


@dataclass(frozen=True, kw_only=True)
class Files:
    """What is removed."""

    purge: Annotated[bool, Flag("Also delete the files of the table; needs --yes.")] = False
    yes: Annotated[bool, Flag("Delete the files; without it, --purge only lists them.")] = False
    ignore_unreadable: IgnoreUnreadable = False


def drop(context: typer.Context, table: TableArgument, files: Files, run: WholeTableRun) -> Outcome:
    """Drop a table; its files stay unless they are purged.

    A table that was dropped without --purge comes back with lake register and the location of its
    metadata file, which the command prints.
    """
    from lake.core.maintain.definition import drop as dropping

    if not files.purge:
        require("--purge", files)
    session = session_of(context)
    loaded = session.table(table)
    purged = {"purge": files.purge, "ignore_unreadable": files.ignore_unreadable}
    if run.dry_run or (files.purge and not files.yes):
        return dropping.preview(dropping.plan_drop(session, loaded, **purged))
    outcome = dropping.drop(session, loaded, **purged, wait_ms=run.wait)
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
