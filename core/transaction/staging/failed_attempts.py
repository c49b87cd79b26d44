"""Files of task attempts that an engine lost and repeated: deleted before the reported files are committed."""

from __future__ import annotations

from collections.abc import Iterable

from lake.core.base import locations
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session


def remove_lost_attempts(
    session: Session, table: Table, operation_id: str, reported: Iterable[str]
) -> None:
    """Delete an operation's files that no task reported and no snapshot may reference.

    If every task was attempted once, there is nothing to search for. Otherwise the engine is stopped first: an
    attempt that it considers lost may still be writing.
    """
    if not session.may_have_lost_attempts:
        return
    session.close()
    remove_unreported(session, table, operation_id, reported)


def remove_unreported(
    session: Session, table: Table, operation_id: str, reported: Iterable[str]
) -> None:
    """Delete an operation's files that no task reported and no snapshot may reference."""
    kept = {locations.canonical(path) for path in reported} | session.protected_files
    table.storage.end_uploads(table.data_location, operation_id)
    found = table.storage.find(table.data_location, operation_id)
    outcome = table.storage.delete(path for path in found if locations.canonical(path) not in kept)
    if outcome.failed:
        session.warn(
            f"{len(outcome.failed)} files of lost attempts could not be removed; no snapshot references them"
        )
