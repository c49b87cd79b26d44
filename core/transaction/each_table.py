"""Run one command for each table whose name matches a pattern, and report what it did to each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lake.core.base.errors import (
    EngineError,
    InvalidRequestError,
    LakeError,
    NotATableError,
    NotFoundError,
    ReportedError,
    StoppedError,
)
from lake.core.base.facts import EachTableResult, TableRunFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.base.progress import Step
from lake.core.table.catalogs.names import (
    Answers,
    is_listed,
    namespaces_of,
    require_existing,
    unaddressable_error,
)
from lake.core.table.catalogs.patterns import matches, may_match
from lake.core.transaction.lanes import require_jobs, usual_jobs, work_on_each

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

# What the whole run ends with, if one of its tables ended so: the worst first.
_WORST = (Status.DAMAGED, Status.PARTIAL, Status.SUSPECT, Status.DRY_RUN, Status.DONE)


def run_each(
    session: Session,
    pattern: str,
    command: Callable[[Session, str], Outcome],
    ended: Callable[[Session, str, Outcome | LakeError], None],
    jobs: int | None = None,
) -> Outcome:
    """Run a command for each table. One that fails does not stop the others.

    Args:
        session: the session; its engine is started once for all tables that need it.
        pattern: a glob of names such as ``db.*``.
        command: called with a session and the name of a table.
        ended: called after each table with the session, its name and how the command ended.
        jobs: how many tables are worked on at a time, each with a session of its own; None for `usual_jobs`.

    Raises:
        NotFoundError: no table matches, or the catalog does not exist.
        InvalidRequestError: the command refuses its options, or the number of jobs is not allowed.
        LakeError: the catalog cannot be read.
        StoppedError: the user stopped the run; its result contains the tables so far.
    """
    require_jobs(jobs)
    run = _Run(list(_names(session, pattern)), Answers(session.catalog), command, ended)
    # Those of the session as a whole; each row has its own.
    general = session.warnings.copy()
    session.warnings.clear()
    try:
        # What the first table shows to be a mistake in the options is one for all of them.
        work_on_each(session, 1, run.numbers[:1], run.do, is_large=_is_large)
        session.progress.step = None
        number = jobs or usual_jobs(session.catalog)
        work_on_each(session, number, run.numbers[1:], run.do, is_large=_is_large)
    except StoppedError as stop:
        stop.result = run.result
        raise
    finally:
        session.progress.step = None
        session.warnings[:] = general
    if not run.result.tables:
        raise NotFoundError(
            f"no table matches {pattern}", hint="`lake tables` lists the tables of the catalog"
        )
    return Outcome(status=run.status, result=run.result)


def _is_large(_number: int) -> bool:
    """Return False: what a table needs is known when it is planned, and then it waits for Spark or for memory."""
    return False


def _names(session: Session, pattern: str) -> Iterator[tuple[str, LakeError | None]]:
    """Yield the matching tables, and the namespaces that may have some and cannot be listed, with the error."""
    require_existing(session.catalog)
    for space in namespaces_of(session.catalog, [pattern]):
        for name in space.tables:
            if matches(name, space.name, pattern):
                yield name, unaddressable_error(name) if name in space.unaddressable else None
        if space.error is not None and may_match(space.name, pattern):
            yield space.name, space.error


class _Run:
    """The rows of a run; several threads may add theirs.

    Args:
        names: what is worked on, each with the error if it cannot be.
        answers: whether the catalog still answers.
        command: see `run_each`.
        ended: see `run_each`.
    """

    def __init__(
        self,
        names: Sequence[tuple[str, LakeError | None]],
        answers: Answers,
        command: Callable[[Session, str], Outcome],
        ended: Callable[[Session, str, Outcome | LakeError], None],
    ) -> None:
        self._names = names
        self._answers = answers
        self._command = command
        self._ended = ended
        self._rows: dict[int, TableRunFacts] = {}
        self._statuses: set[Status] = set()
        self.numbers = range(len(names))

    @property
    def result(self) -> EachTableResult:
        """The rows so far, in the order of the names."""
        return EachTableResult(tables=[self._rows[number] for number in sorted(self._rows)])

    @property
    def status(self) -> Status:
        return next((one for one in _WORST if one in self._statuses), Status.NOTHING_TO_DO)

    def do(self, session: Session, number: int) -> None:
        """Work on one table; it is called once for each number."""
        name, error = self._names[number]
        if number:
            session.next_command()
        following = self._names[number + 1][0] if number + 1 < len(self._names) else ""
        session.progress.step = Step(number + 1, len(self._names), name, following)
        begun = session.clock.monotonic()
        ending = error or self._ending(session, name, is_first=number == 0)
        if ending is None:
            return
        seconds = round(session.clock.monotonic() - begun, 3)
        if isinstance(ending, Outcome):
            self._statuses.add(ending.status)
            # The program after a commit may add a warning.
            self._ended(session, name, ending)
            self._rows[number] = self._done(session, name, ending, seconds)
            return
        self._statuses.add(Status.PARTIAL)
        if isinstance(ending, EngineError):
            # Its process may have ended; the next table starts another one.
            session.close()
        self._rows[number] = self._failed(session, name, ending, seconds)
        if isinstance(ending, StoppedError):
            raise ending
        self._ended(session, name, ending)

    def _ending(
        self, session: Session, name: str, *, is_first: bool
    ) -> Outcome | LakeError | StoppedError | None:
        """Run the command, and return how it ended; None if there is no such table."""
        try:
            with self._answers.of(f"table {name}"):
                return self._command(session, name)
        except InvalidRequestError as error:
            if is_first:
                raise
            return error
        except NotATableError:
            # Some catalogs list views among the tables.
            return None
        except NotFoundError as error:
            return None if self._is_gone(session, name) else error
        except (LakeError, StoppedError) as error:
            return error

    def _is_gone(self, session: Session, name: str) -> bool:
        """Whether a table was dropped or renamed since the catalog was listed."""
        try:
            return not is_listed(session.catalog, name)
        except LakeError:
            return False

    def _done(self, session: Session, name: str, outcome: Outcome, seconds: float) -> TableRunFacts:
        base = outcome.base_snapshot_id
        return TableRunFacts(
            table=name,
            status=str(outcome.status),
            seconds=seconds,
            operation_id=outcome.operation_id,
            base_snapshot_id=None if base is None else str(base),
            snapshot_ids=[str(item) for item in outcome.snapshot_ids],
            plan=outcome.plan,
            result=outcome.result,
            warnings=_warnings(session, outcome.warnings),
        )

    def _failed(
        self, session: Session, name: str, error: ReportedError, seconds: float
    ) -> TableRunFacts:
        return TableRunFacts(
            table=name,
            status=error.status,
            seconds=seconds,
            operation_id=error.operation_id,
            result=error.result,
            warnings=_warnings(session),
            error=error.facts(),
        )


def _warnings(session: Session, more: Sequence[str] = ()) -> list[str]:
    found = [*more, *session.warnings]
    session.warnings.clear()
    return found
