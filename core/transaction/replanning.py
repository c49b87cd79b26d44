"""Plan and commit again after another writer's commit was in conflict with a plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from lake.core.base.errors import CommitConflictError
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session

_Start = TypeVar("_Start")
_Done = TypeVar("_Done")


class Start(NamedTuple):
    """What an attempt begins with: the table to plan on, and the id of the operation to commit."""

    session: Session
    table: Table
    operation_id: str

    def renewed(self) -> Start:
        """Return the table as it is now, with an id that no commit has."""
        return Start(self.session, self.table.refreshed(), self.session.ids.uuid())


def replanned(
    attempt: Callable[[_Start], _Done],
    start: _Start,
    again: Callable[[_Start], _Start],
    *,
    rounds: int = 5,
) -> _Done:
    """Return the result of the first attempt that is not in conflict with other writers.

    Args:
        attempt: plans and commits. Nothing after its commit may raise a conflict: the same would be committed twice.
        start: what the first attempt begins with.
        again: returns what the next one begins with, such as the table as it is then.
        rounds: the greatest number of attempts.

    Raises:
        CommitConflictError: all attempts were in conflict. No other error leads to another attempt: a commit with
            an unknown outcome may have succeeded.
    """
    for _ in range(rounds - 1):
        with suppress(CommitConflictError):
            return attempt(start)
        start = again(start)
    return attempt(start)
