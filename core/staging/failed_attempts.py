"""Files of attempts at tasks that an engine lost and repeated: gone before what was reported is committed."""

from __future__ import annotations

from collections.abc import Iterable

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.session import Session


def remove_lost_attempts(
    session: Session, table: Table, operation_id: str, reported: Iterable[str]
) -> None:
    """Remove an operation's files that neither a task reported nor a snapshot may hold.

    Nothing is looked for when every task was tried once. Otherwise the engine is ended first: an attempt that
    it holds for lost may still write.
    """
    if not session.may_have_lost_attempts:
        return
    session.close()
    kept = {locations.canonical(path) for path in reported} | session.protected_files
    table.storage.end_uploads(table.data_location, operation_id)
    found = table.storage.find(table.data_location, operation_id)
    outcome = table.storage.delete(path for path in found if locations.canonical(path) not in kept)
    if outcome.failed:
        session.warn(
            f"{len(outcome.failed)} files of lost attempts could not be removed; no snapshot holds them"
        )
