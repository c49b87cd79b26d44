"""`lake ingest --route`: the options of a load into many tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.commands.loads.load import load
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.ingest.options import IngestOptions
    from lake.core.load.routing.options import RouteOptions
    from lake.core.load.routing.stream import Journal
    from lake.core.load.upsert.options import UpsertOptions
    from lake.core.transaction.session import Session


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


@dataclass(frozen=True, slots=True)
class RoutedLoad:
    """A load into the tables that the rows' values name.

    Args:
        session: the session.
        route: how rows are divided.
        by_key: the options of loads by key; None for other loads.
        landed: called with the outcome of each commit.
    """

    session: Session
    route: RouteOptions
    by_key: UpsertOptions | ChangeOptions | None
    landed: Callable[[Outcome], None]

    def run(
        self, options: IngestOptions, *, journal: Journal | None = None, dry_run: bool = False
    ) -> Outcome:
        """Load each row into its table.

        Args:
            options: how each table is loaded; its sources are those of all tables.
            journal: notes which tables contain the epoch of a stream; None for other loads.
            dry_run: describe the plan only.

        Raises:
            InvalidRequestError: options contradict each other.
        """
        from lake.core.load.routing.execute import run_route

        session = self.session

        def load_once(table: str, once: IngestOptions) -> Outcome:
            return load(session, table, once, self.by_key, dry_run=dry_run)

        def load_epoch(table: str, once: IngestOptions) -> Outcome:
            from lake.core.load.continuous.runs import with_new_plans

            return with_new_plans(session, lambda: load_once(table, once))

        def load_table(table: str, once: IngestOptions) -> Outcome:
            outcome = (load_once if journal is None else load_epoch)(table, once)
            self.landed(outcome)
            return outcome

        return run_route(
            session,
            options,
            self.route,
            self.by_key,
            load_table,
            journal=journal,
            dry_run=dry_run,
        )
