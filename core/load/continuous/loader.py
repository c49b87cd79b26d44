"""How the epochs of a stream are loaded: into one table, or into the tables that a column names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base.errors import StoppedError
from lake.core.base.outcome import Outcome
from lake.core.load.ingest.facts import IngestResult
from lake.core.load.routing.execute import run_route
from lake.core.load.routing.facts import RouteResult
from lake.core.load.run import load, load_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.ingest.options import IngestOptions, LoadRequest
    from lake.core.load.routing.options import RouteOptions
    from lake.core.load.routing.stream import Journal
    from lake.core.load.upsert.options import UpsertOptions
    from lake.core.transaction.session import Session


class Stopped(Exception):  # noqa: N818 - not a failure
    """A stop signal arrived between two epochs."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """End the run in order if a stop signal arrives inside the block.

    Raises:
        Stopped: a signal arrived.
    """
    try:
        yield
    except (StoppedError, KeyboardInterrupt) as stop:
        raise Stopped from stop


@contextmanager
def between_epochs(session: Session) -> Iterator[None]:
    """End the run in order if a stop signal arrives inside the block, or arrived after the last commit.

    Raises:
        Stopped: a signal arrived.
    """
    session.interrupts.release()
    with ending_in_order():
        session.interrupts.checkpoint()
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads the epochs of a stream.

    Args:
        session: the session.
        table: the table's name.
        options: how each epoch is loaded, without its source.
        by_key: the options of loads by key; None for other loads.
        route: how rows are divided among tables; None to load them into one table.
        landed: called with the outcome of each commit, after it was recorded.
    """

    session: Session
    table: str
    options: IngestOptions
    by_key: UpsertOptions | ChangeOptions | None
    route: RouteOptions | None = None
    landed: Callable[[Outcome], None]
    _unreported: list[Outcome] = field(default_factory=list)

    def load(self, requested: Callable[[], LoadRequest], journal: Journal | None = None) -> Outcome:
        """Load an epoch; stops that come after its commit are held back until it is reported.

        Args:
            requested: returns how the epoch is loaded; called for each plan.
            journal: notes which tables contain the epoch, if rows are divided among tables.

        Raises:
            CommitConflictError: each plan was in conflict; nothing was changed.
            CommitUnknownError: the outcome is unknown; the next run finds out.
        """
        requests: list[LoadRequest] = []

        def load_once() -> Outcome:
            requests.append(requested())
            if self.route is None:
                return load(self.session, self.table, requests[-1], self.by_key)
            return run_route(
                self.session, requests[-1], self.route, self.by_key, self.landed, journal=journal
            )

        outcome = load_epoch(self.session, load_once)
        if self.route is None:
            self._unreported.append(outcome)
        result = outcome.result
        rejected = result.rows_rejected if isinstance(result, IngestResult | RouteResult) else 0
        if rejected:
            # Cron and services show warnings only.
            rows = "1 row was" if rejected == 1 else f"{rejected:,} rows were"
            last = requests[-1]
            self.session.warn(f"{last.epoch}: {rows} rejected, see {last.rejects_file}")
        return outcome

    def report(self) -> None:
        """Report what was loaded since the last call and is recorded; of several tables, each was reported by itself.

        Stops can interrupt it. One that was held back is raised later, when all is reported.
        """
        self.session.interrupts.release()
        while self._unreported:
            self.landed(self._unreported.pop(0))
