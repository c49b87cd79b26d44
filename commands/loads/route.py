"""`lake ingest --route`: the options of a load into many tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.errors import InvalidRequestError

if TYPE_CHECKING:
    from lake.core.load.routing.options import RouteOptions


def routing(table: str, route: str | None, max_tables: int | None) -> RouteOptions | None:
    """Return how rows are divided among tables; None if they are not.

    Args:
        table: the tables' name, in which the column's name is replaced.
        route: the column; None if none was given.
        max_tables: the largest number of tables, if it was given.

    Raises:
        InvalidRequestError: options contradict each other.
    """
    if route is None:
        if max_tables is not None:
            raise InvalidRequestError("--max-tables needs --route")
        return None
    from lake.core.load.routing.options import MOST_TABLES, RouteOptions

    most = MOST_TABLES if max_tables is None else max_tables
    return RouteOptions(name=table, column=route, max_tables=most)
