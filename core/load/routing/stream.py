"""An epoch of a stream that is divided among tables: which tables it belongs to, and which of them contain it.

Each table has its own commit. The stream notes the tables before the first of these commits, and each table after its
own, so that a repetition of the epoch loads only the tables that lack it. The epoch in the table's history is the
evidence: a commit that was not noted is found there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyiceberg.exceptions import NoSuchNamespaceError

from lake.core.base.errors import NotFoundError
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.names import namespaces_of
from lake.core.table.snapshots.streams import StreamEpoch, newest_epoch

if TYPE_CHECKING:
    from lake.core.load.routing.options import RouteOptions
    from lake.core.transaction.session import Session


class Journal(Protocol):
    """What a stream notes about the epoch that it loads. Each note is durable when the call returns."""

    @property
    def settled(self) -> Collection[str]:
        """The tables of which the commit is noted."""

    def begin(self, tables: Sequence[str]) -> None:
        """Note the tables that receive rows; none of them was changed yet."""

    def settle(self, table: str) -> None:
        """Note that a table contains the epoch, or that the epoch does not change it."""


def newest_of_all(
    session: Session, route: RouteOptions, branch: str, stream: str
) -> StreamEpoch | None:
    """Return the newest epoch that any table of a route contains; None if there is none.

    Raises:
        LakeError: the tables cannot be listed or read.
    """
    epochs = []
    for name in _tables_of(session, route):
        try:
            epochs.append(newest_epoch(session.table(name), branch, stream))
        except NotFoundError:
            continue
    found = (epoch for epoch in epochs if epoch is not None)
    return max(found, key=lambda epoch: epoch.number, default=None)


def _tables_of(session: Session, route: RouteOptions) -> Iterator[str]:
    """Yield the names of the catalog's tables that rows can be divided among."""
    namespace, _, _ = route.name.rpartition(".")
    pattern = re.compile(route.pattern)
    if route.is_in(namespace):
        # check: transient-failure-of-epochs
        listed = [table for found in namespaces_of(session.catalog) for table in found.listed()]
    else:
        listed = _listed(session, namespace)
    return (name for name in listed if pattern.fullmatch(name))


def _listed(session: Session, namespace: str) -> list[str]:
    try:
        with catalog_errors(f"namespace {namespace}", session.catalog):
            found = session.catalog.handle.list_tables(tuple(namespace.split(".")))
    except (NotFoundError, NoSuchNamespaceError):
        return []
    return sorted(".".join(map(str, name)) for name in found)
