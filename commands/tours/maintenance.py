"""Make the tables of `lake demo --lake`, grade them, maintain all of them, and grade them again.

Each step calls the functions that its command calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lake.commands.actions import asked_of, choices
from lake.commands.reports.facts import GradeCounts, Step, WarehouseDemoResult
from lake.commands.tours.folder import clear_folder
from lake.commands.tours.tables import TABLES, make_tables
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.maintain.health.facts import HealthResult
from lake.core.maintain.health.health import HealthOptions, health
from lake.core.maintain.policies.policy import Policy
from lake.core.maintain.rounds.facts import RoundResult
from lake.core.maintain.rounds.options import RoundOptions
from lake.core.maintain.rounds.round import maintain

if TYPE_CHECKING:
    from lake.core.maintain.rounds.options import RunVerb
    from lake.core.transaction.session import Session

FOLDER = "lake-demo-warehouse"
_PAGE, _LOG = "health.html", "runs.jsonl"
_OWN = frozenset({_PAGE, _LOG, *(spec.name.replace(".", "/") for spec in TABLES)})


def run_maintenance_demo(
    session: Session, folder: Path, run_verb: RunVerb, clean: Callable[[str], str]
) -> Outcome:
    """Make the tables in the folder's catalog, and maintain them.

    Raises:
        RefusedError: the folder contains files that this demo does not create.
    """
    clear_folder(folder, _OWN)
    make_tables(session, TABLES)
    tour = _Tour(session)
    before = tour.grade()
    tour.maintain(
        run_verb,
        RoundOptions(
            policy=Policy(),
            choices=choices(),
            log=str(folder / _LOG),
            asked=asked_of,
            pending=lambda _table: 0,
            clean=clean,
        ),
    )
    page = str(folder / _PAGE)
    after = tour.grade(page)
    return Outcome(
        status=Status.DONE,
        result=WarehouseDemoResult(
            folder=str(folder),
            before=before,
            after=after,
            page=page,
            steps=tour.steps,
        ),
        details=tour.details,
        notes=tour.notes,
    )


class _Tour:
    """The steps, in order; each is recorded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.steps: list[Step] = []
        self.details: list[Detail] = []
        self.notes: Sequence[str] = ()

    def grade(self, page: str | None = None) -> GradeCounts:
        """Grade the tables, and write a page about them if it has a path."""
        option = "" if page is None else f" --html {_PAGE}"
        with self._step(f"lake health{option}") as said:
            outcome = health(self._session, (), HealthOptions(html=page))
            rows = HealthResult.of(outcome.result).tables
            grades = Counter("unreadable" if row.error else row.grade for row in rows)
            counts = GradeCounts(
                **{name: grades[name] for name in ("bad", "due", "good", "unreadable")}
            )
            said.append(counts.text)
        self.notes = outcome.notes
        self.details += [
            item._replace(title=self.steps[-1].title) for item in outcome.details if item.rows
        ]
        return counts

    def maintain(self, run_verb: RunVerb, options: RoundOptions) -> None:
        """Give each table the maintenance that it needs."""
        with self._step("lake maintain") as said:
            result = RoundResult.of(maintain(self._session, run_verb, options).result)
            done = [item for item in result.actions if item.status == Status.DONE]
            tables = len({item.table for item in done})
            said.append(f"{len(done)} actions on {tables} of {len(TABLES)} tables")
            # The table that cannot be read is in the grades.
            if failed := [item for item in result.failed if item.action]:
                said.append(f"{len(failed)} failed")

    @contextmanager
    def _step(self, command: str) -> Iterator[list[str]]:
        clock = self._session.clock
        started, said = clock.monotonic(), list[str]()
        yield said
        self._session.next_command()
        seconds = round(clock.monotonic() - started, 3)
        step = Step(command, ", ".join(said), seconds)
        self.steps.append(step)
        # The tables are printed at the end of the tour.
        self._session.note(step.title, {"step": step.command})
