"""Files that were written but not committed: gone again when the command fails, unless they may be live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lake.core import paths
from lake.core.errors import CommitUnknownError
from lake.core.session import Session
from lake.core.table.catalog import Table


@contextmanager
def staged(session: Session, table: Table, operation_id: str) -> Iterator[None]:
    """Remove, when the block fails, every data file named after the operation.

    Files are found by name, not by what tasks reported: a task that was killed reports nothing. Files that
    a snapshot holds or may hold (`Session.owned`) stay, and after an unknown outcome all stay.
    """
    try:
        yield
    except CommitUnknownError:
        raise
    except BaseException:
        session.close()  # first: a task that still runs would write on
        remove_operation_files(session, table, operation_id)
        raise


def remove_operation_files(session: Session, table: Table, operation_id: str) -> None:
    """Delete the data files whose names carry an operation id and that no snapshot may hold."""
    found = table.storage.find(table.data_location, operation_id)
    outcome = table.storage.delete(
        path for path in found if paths.canonical(path) not in session.owned
    )
    if outcome.failed:
        session.warn(
            f"{len(outcome.failed)} files of operation {operation_id} could not be removed; "
            "no snapshot holds them"
        )
