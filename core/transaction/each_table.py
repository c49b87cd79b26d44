"""Run one command for each table whose name matches a pattern, and report what it did to each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    is_listed,
    namespaces_of,
    require_existing,
    unaddressable_error,
)
from lake.core.table.catalogs.patterns import matches, may_match

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

# What the whole run ends with, if one of its tables ended so: the worst first.
_WORST = (Status.DAMAGED, Status.PARTIAL, Status.SUSPECT, Status.DRY_RUN, Status.DONE)


def run_each(
    session: Session,
    pattern: str,
    command: Callable[[str], Outcome],
    ended: Callable[[str, Outcome | LakeError], None],
) -> Outcome:
    """Run a command for each table in turn. One that fails does not stop the others.

    Args:
        session: the session; its engine is started once for all tables that need it.
        pattern: a glob of names such as ``db.*``.
        command: called with the name of a table.
        ended: called after each table with its name and how the command ended.

    Raises:
        NotFoundError: no table matches, or the catalog does not exist.
        InvalidRequestError: the command refuses its options.
        LakeError: the catalog cannot be read.
        StoppedError: the user stopped the run; its result contains the tables so far.
    """
    run = _Run(session, command, ended)
    names = list(_names(session, pattern))
    # Those of the session as a whole; each row has its own.
    general = session.warnings.copy()
    session.warnings.clear()
    try:
        for number, (name, error) in enumerate(names):
            if number:
                session.next_command()
            following = names[number + 1][0] if number + 1 < len(names) else ""
            session.progress.step = Step(number + 1, len(names), name, following)
            if error is None:
                run.one(name, is_first=number == 0)
            else:
                run.failed(name, error, 0.0)
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


def _names(session: Session, pattern: str) -> Iterator[tuple[str, LakeError | None]]:
    """Yield the matching tables, and the namespaces that may have some and cannot be listed, with the error."""
    require_existing(session.catalog)
    for space in namespaces_of(session.catalog):
        for name in space.tables:
            if matches(name, space.name, pattern):
                yield name, unaddressable_error(name) if name in space.unaddressable else None
        if space.error is not None and may_match(space.name, pattern):
            yield space.name, space.error


class _Run:
    def __init__(
        self,
        session: Session,
        command: Callable[[str], Outcome],
        ended: Callable[[str, Outcome | LakeError], None],
    ) -> None:
        self._session = session
        self._command = command
        self._ended = ended
        self._statuses: set[Status] = set()
        self.result = EachTableResult()

    @property
    def status(self) -> Status:
        return next((one for one in _WORST if one in self._statuses), Status.NOTHING_TO_DO)

    def one(self, name: str, *, is_first: bool) -> None:
        clock = self._session.clock
        begun = clock.monotonic()
        try:
            outcome = self._command(name)
        except InvalidRequestError as error:
            if is_first:
                raise
            self.failed(name, error, clock.monotonic() - begun)
        except NotATableError:
            # Some catalogs list views among the tables.
            return
        except NotFoundError as error:
            if self._is_gone(name):
                return
            self.failed(name, error, clock.monotonic() - begun)
        except StoppedError as stop:
            self._add(name, stop, clock.monotonic() - begun)
            raise
        except LakeError as error:
            self.failed(name, error, clock.monotonic() - begun)
        else:
            self._done(name, outcome, clock.monotonic() - begun)

    def failed(self, name: str, error: LakeError, seconds: float) -> None:
        self._statuses.add(Status.PARTIAL)
        if isinstance(error, EngineError):
            # Its process may have ended; the next table starts another one.
            self._session.close()
        self._add(name, error, seconds)
        self._ended(name, error)

    def _is_gone(self, name: str) -> bool:
        """Whether a table was dropped or renamed since the catalog was listed."""
        try:
            return not is_listed(self._session.catalog, name)
        except LakeError:
            return False

    def _done(self, name: str, outcome: Outcome, seconds: float) -> None:
        self._statuses.add(outcome.status)
        base = outcome.base_snapshot_id
        # The program after a commit may add a warning.
        self._ended(name, outcome)
        self.result.tables.append(
            TableRunFacts(
                table=name,
                status=str(outcome.status),
                seconds=round(seconds, 3),
                operation_id=outcome.operation_id,
                base_snapshot_id=None if base is None else str(base),
                snapshot_ids=[str(item) for item in outcome.snapshot_ids],
                plan=outcome.plan,
                result=outcome.result,
                warnings=self._warnings(outcome),
            )
        )

    def _add(self, name: str, error: ReportedError, seconds: float) -> None:
        self.result.tables.append(
            TableRunFacts(
                table=name,
                status=error.status,
                seconds=round(seconds, 3),
                operation_id=error.operation_id,
                result=error.result,
                warnings=self._warnings(),
                error=error.facts(),
            )
        )

    def _warnings(self, outcome: Outcome | None = None) -> list[str]:
        found = [*(outcome.warnings if outcome else ()), *self._session.warnings]
        self._session.warnings.clear()
        return found
