"""Rename a table in its catalog; its files stay where they are."""

from __future__ import annotations

from lake.core.base.errors import NotFoundError, RefusedError
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.definition.entries import change_entry, refuse_folders
from lake.core.maintain.definition.facts import RenameFacts
from lake.core.table.catalogs.catalog import Table, split_identifier
from lake.core.transaction.session import Session


def check_name(session: Session, name: str) -> None:
    """Check that a table can be renamed so.

    Raises:
        RefusedError: another table has the name, or the catalog cannot rename tables.
        InvalidRequestError: it is not a name of a table.
    """
    split_identifier(name)
    refuse_folders(
        session.catalog,
        "rename",
        hint=f"{Option.FROM_TABLE} copies the rows to a table with the new name",
    )
    if session.catalog.exists(name):
        raise RefusedError(f"table {name} exists already", hint="choose another name")


def execute(session: Session, table: Table, name: str, *, dry_run: bool) -> Outcome:
    """Rename the table.

    Raises:
        NotFoundError: the table was dropped or renamed meanwhile.
        CommitConflictError: another process created a table with the name meanwhile; nothing was changed.
        CommitUnknownError: the table may have been renamed.
    """
    if dry_run:
        return _outcome(table, name, Status.DRY_RUN)
    catalog, uuid = session.catalog, table.metadata.table_uuid
    catalog.make_namespace(name)
    table.refreshed()

    def has_table(identifier: str) -> bool:
        try:
            return catalog.load(identifier).metadata.table_uuid == uuid
        except NotFoundError:
            return False

    def is_made() -> bool:
        # Some catalogs make the new entry before they remove the old one.
        return has_table(name) and not has_table(table.identifier)

    change_entry(
        session,
        f"table {table.identifier}",
        lambda: catalog.rename(table.identifier, name),
        is_made,
    )
    return _outcome(table, name, Status.DONE)


def _outcome(table: Table, name: str, status: Status) -> Outcome:
    facts = RenameFacts(from_=table.identifier, to=name, location=table.metadata.location)
    return Outcome(
        status=status,
        base_snapshot_id=table.metadata.current_snapshot_id,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
    )
