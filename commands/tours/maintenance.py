"""Make the tables of `lake demo --lake`, grade them, maintain all of them, and grade them again.

Each step calls the functions that its command calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lake.commands.reports.facts import GradeCounts, MaintenanceStep, WarehouseDemoResult
from lake.commands.tours.folder import clear_folder
from lake.commands.tours.tables import TABLES, make_tables
from lake.core.base.facts import EachTableResult
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.maintain.compaction.run import Compaction
from lake.core.maintain.delete_conversion import execute as conversion
from lake.core.maintain.delete_conversion.conversion_plan import plan_conversion
from lake.core.maintain.delete_conversion.rewrite_plan import plan_rewrite
from lake.core.maintain.expiration import execute as expiration
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.maintain.health.facts import HealthResult
from lake.core.maintain.health.health import HealthOptions, health
from lake.core.maintain.manifest_rewrite import execute as manifest_rewrite
from lake.core.maintain.manifest_rewrite.plan import ManifestOptions
from lake.core.table.snapshots.ancestry import MAIN
from lake.core.transaction.each_table import run_each
from lake.core.transaction.locks.table_lock import with_table_lock

if TYPE_CHECKING:
    from lake.core.maintain.delete_conversion.plan import DeletePlan
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

FOLDER = "lake-demo-warehouse"
_ALL = "*"
_OWN = frozenset(spec.name.replace(".", "/") for spec in TABLES)


def run_maintenance_demo(session: Session, folder: Path) -> Outcome:
    """Make the tables in the folder's catalog, and maintain them.

    Raises:
        RefusedError: the folder contains files that this demo does not create.
    """
    clear_folder(folder, _OWN)
    make_tables(session, TABLES)
    tour = _Tour(session)
    before = tour.grade()
    for command, run in _commands(session):
        tour.maintain(command, run)
    after = tour.grade()
    return Outcome(
        status=Status.DONE,
        result=WarehouseDemoResult(
            folder=str(folder),
            before=before,
            after=after,
            steps=tour.steps,
        ),
        details=tour.details,
        notes=tour.notes,
    )


def _commands(session: Session) -> list[tuple[str, Callable[[], Outcome]]]:
    """Return the maintenance of all tables, as command lines and what they do."""
    works: dict[str, Callable[[Session, Table], Outcome]] = {
        "compact": _compact,
        "deletes --convert": partial(_change_deletes, convert=True),
        "deletes --rewrite": partial(_change_deletes, convert=False),
        "manifests": _rewrite_manifests,
        "expire": _expire,
    }
    return [(_line(verb), partial(_each, session, work)) for verb, work in works.items()]


def _line(verb: str) -> str:
    name, _, option = verb.partition(" ")
    return f"lake {name} '{_ALL}' {option}".rstrip()


def _each(session: Session, work: Callable[[Session, Table], Outcome]) -> Outcome:
    return run_each(
        session, _ALL, lambda name: work(session, session.table(name)), lambda _name, _ended: None
    )


def _compact(session: Session, table: Table) -> Outcome:
    return Compaction(session=session, branch=MAIN).run(table)


def _change_deletes(session: Session, table: Table, *, convert: bool) -> Outcome:
    def work(now: Table, run: str) -> Outcome:
        def plan(latest: Table) -> DeletePlan:
            return (
                plan_conversion(latest, MAIN, None, run)
                if convert
                else plan_rewrite(latest, MAIN, None)
            )

        return conversion.execute(session, now, MAIN, run, plan)

    return with_table_lock(session, table, work, command="deletes", repeated=True)


def _rewrite_manifests(session: Session, table: Table) -> Outcome:
    def work(now: Table, run: str) -> Outcome:
        return manifest_rewrite.execute(session, now, ManifestOptions(branch=MAIN), run)

    return with_table_lock(session, table, work, command="manifests", repeated=True)


def _expire(session: Session, table: Table) -> Outcome:
    def work(now: Table, run: str) -> Outcome:
        plan = plan_expiration(session, now, RetentionOptions())
        return expiration.execute(session, plan, run)

    return with_table_lock(session, table, work, command="expire", repeated=True)


class _Tour:
    """The steps, in order; each is recorded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.steps: list[MaintenanceStep] = []
        self.details: list[Detail] = []
        self.notes: Sequence[str] = ()

    def grade(self) -> GradeCounts:
        """Grade the tables."""
        with self._step("lake health") as said:
            outcome = health(self._session, (), HealthOptions())
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

    def maintain(self, command: str, run: Callable[[], Outcome]) -> None:
        """Run a command for all tables."""
        with self._step(command) as said:
            ended = Counter(row.status for row in EachTableResult.of(run().result).tables)
            changed, failed = ended[Status.DONE], ended[Status.FAILED]
            said.append(f"{changed} of {len(TABLES)} tables changed")
            if failed:
                said.append(f"{failed} failed")

    @contextmanager
    def _step(self, command: str) -> Iterator[list[str]]:
        clock = self._session.clock
        started, said = clock.monotonic(), list[str]()
        yield said
        self._session.next_command()
        seconds = round(clock.monotonic() - started, 3)
        step = MaintenanceStep(command, ", ".join(said), seconds)
        self.steps.append(step)
        # The tables are printed at the end of the tour.
        self._session.note(step.title, {"step": step.command})
