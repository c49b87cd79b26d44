"""One round: look at all tables at once, then give each the actions that are due, those that save most first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from lake.core.base.errors import (
    EngineError,
    LakeError,
    NotFoundError,
    OutOfTimeError,
    ReportedError,
    StoppedError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.compaction.facts import CompactionFacts, CompactionResult
from lake.core.maintain.rounds.agenda import Agenda
from lake.core.maintain.rounds.budget import Budget
from lake.core.maintain.rounds.candidates import Candidate
from lake.core.maintain.rounds.decisions import Decision, forbidden
from lake.core.maintain.rounds.facts import ANOTHER_RUN, DecisionFacts, FailureFacts, RoundResult
from lake.core.maintain.rounds.options import Call, RoundOptions, RunVerb
from lake.core.maintain.rounds.records import Records
from lake.core.maintain.rounds.status import StatusFile
from lake.core.maintain.rounds.tables import Remembered, Tables, order_of
from lake.core.read.exports.destinations import refuse_inside
from lake.core.table.catalogs.names import is_listed, load_listed
from lake.core.transaction.lanes import needs_spark, usual_jobs, work_on_each
from lake.core.transaction.locks.table_lock import with_table_lock

if TYPE_CHECKING:
    from lake.core.maintain.rounds.candidates import Base
    from lake.core.maintain.rounds.plan_file import PlannedAction
    from lake.core.transaction.session import Session

T = TypeVar("T")
# Nothing else is done to a table after these: its state is not known, or belongs to another run.
_ENDS_TABLE = frozenset({"unknown", "locked"})
_GONE = "the table is gone"
# What the result has of each table.
_OF_A_TABLE = ("actions", "left_alone", "rest", "obsolete", "failed")


def maintain(session: Session, run_verb: RunVerb, options: RoundOptions) -> Outcome:
    """Give each table the maintenance that it needs.

    A table or an action that fails does not stop the others.

    Args:
        session: the session; its engine is started once for all tables that need it.
        run_verb: runs a verb on a table.
        options: the options.

    Raises:
        NotFoundError: a pattern selects nothing, or the catalog does not exist.
        BadInputError: the file of the run log is another file.
        LakeError: the catalog cannot be read.
        StoppedError: the user stopped the run; its result contains what was done.
    """
    return Round(session, run_verb, options).run()


@dataclass(slots=True)
class _Done:
    """How an action ended, and the table after it: None if nothing more is done to it."""

    seen: Candidate | None
    is_changed: bool = False


class Round:
    """One round.

    Args:
        session: the session.
        run_verb: runs a verb on a table.
        options: the options.
        remembered: what an earlier round of this process saw; None for nothing.
        status: the file that a probe reads; None for none.
    """

    def __init__(
        self,
        session: Session,
        run_verb: RunVerb,
        options: RoundOptions,
        remembered: Remembered | None = None,
        status: StatusFile | None = None,
    ) -> None:
        self.session = session
        self.run_verb = run_verb
        self.options = options
        self.tables = Tables(session, options, remembered)
        self.budget = Budget(session.clock, options.max_ms, options.max_bytes, session.begun)
        self.result = RoundResult(run=session.ids.uuid())
        self.records = Records(options, self.result.run)
        self.jobs = options.jobs or usual_jobs(session.catalog)
        self._status_file = status or StatusFile(None, session.clock, session.ids)
        # The warnings of the run as a whole; each action has its own.
        self._general = session.warnings.copy()
        self._agenda = Agenda(session.clock, [])
        # What was to be done when the round began.
        self._due: list[DecisionFacts] = []
        self._is_plan = False
        # What was done to each table: the result is in the order of the tables, whichever ends first.
        self._parts: list[RoundResult] = []

    def run(self) -> Outcome:
        """Do what is due, see `maintain`."""
        with self._running():
            candidates = self.tables.ordered(self.budget)
            self._general = self.session.warnings.copy()
            self.result.tables = len(candidates)
            self.result.pending += self.tables.pending
            self.result.failed += self.tables.failed
            due = self.tables.due(candidates)
            self._agenda = Agenda(self.session.clock, due)
            self._due = [item.facts() for item in due]
            largest: dict[str, int] = {}
            for item in due:
                size = (item.forecast and item.forecast.bytes) or 0
                largest[item.table] = max(largest.get(item.table, 0), size)

            def one(work: _TableWork, seen: Candidate) -> None:
                work.maintain(seen, is_due=seen.table in largest)

            self._each(candidates, one, lambda seen: largest.get(seen.table, 0))
        return self._outcome()

    def apply(self, planned: Sequence[PlannedAction], *, replan: bool) -> Outcome:
        """Do what a plan contains; the patterns and the policy of the options have no effect.

        Args:
            planned: the actions of the plan. Tables that have changed since are left alone.
            replan: also work on tables that have changed: each action plans on the table as it is now.

        Raises:
            StoppedError: the user stopped the run; its result contains what was done.
        """
        by_table: dict[str, list[PlannedAction]] = {}
        for item in planned:
            by_table.setdefault(item.table, []).append(item)
        self.result.tables, self._is_plan = len(by_table), True
        self._due = [item.facts(item.reason) for item in planned]
        with self._running():
            self._each(
                list(by_table.values()),
                lambda work, actions: work.apply(actions, replan=replan),
                lambda actions: max(
                    item.forecast.bytes if item.forecast else 0 for item in actions
                ),
            )
        return self._outcome()

    def begin(self, decision: Decision) -> None:
        """Show that an action begins."""
        self.session.progress.step = self._agenda.begin(decision)
        self._status_file.set_running(self._agenda.running)

    def end(self, decision: Decision) -> None:
        """Show that an action has ended."""
        step = self._agenda.end(decision)
        if step is not None:
            self.session.progress.step = step
            self._status_file.set_running(self._agenda.running)

    def due_of(self, table: str) -> list[DecisionFacts]:
        """Return what was to be done to a table when the round began."""
        return [item for item in self._due if item.table == table]

    def leave_to_another(
        self, result: RoundResult, decision: Decision, warnings: Sequence[str]
    ) -> None:
        """Note that another run works on the table. What a plan contains is still to be done."""
        (result.rest if self._is_plan else result.left_alone).append(decision.facts(ANOTHER_RUN))
        self._general += warnings

    def leave(self, table: str) -> None:
        """Note that nothing else is done to a table."""
        self._agenda.leave(table)

    def _each(
        self,
        items: Sequence[T],
        do: Callable[[_TableWork, T], None],
        bytes_of: Callable[[T], int],
    ) -> None:
        """Do what there is to do for each table, several small ones at a time."""
        settings = self.session.settings
        self._parts = [RoundResult() for _ in items]

        def one(session: Session, numbered: tuple[RoundResult, T]) -> None:
            part, item = numbered
            try:
                do(_TableWork(self, session, part), item)
            finally:
                session.work_on(None)

        work_on_each(
            self.session,
            self.jobs,
            list(zip(self._parts, items, strict=True)),
            one,
            is_large=lambda numbered: needs_spark(bytes_of(numbered[1]), settings),
        )

    @contextmanager
    def _running(self) -> Iterator[None]:
        self.session.until = self.budget.until
        is_stopped = False
        try:
            yield
            self._publish()
        except StoppedError as stop:
            stop.result, is_stopped = self.result, True
            with suppress(StoppedError):
                self._publish()
            raise
        finally:
            for part in self._parts:
                for name in _OF_A_TABLE:
                    getattr(self.result, name).extend(getattr(part, name))
            if is_stopped:
                self.result.rest += self._not_begun()
            self.result.rest += self.tables.unread
            self._end_limits()
            self.session.warnings[:] = dict.fromkeys([*self._general, *self.records.problems])

    def _not_begun(self) -> Iterator[DecisionFacts]:
        """Yield what was due, and what the run that was stopped neither did nor decided."""
        found = [item for name in _OF_A_TABLE for item in getattr(self.result, name)]
        known = {(item.table, item.action) for item in found}
        for item in self._due:
            if (item.table, item.action) not in known:
                yield replace(item, reason="the run was stopped")

    def _end_limits(self) -> None:
        self.session.until = None
        self.session.progress.step = None

    def _publish(self) -> None:
        """Append the runs to their table, which is not one of the actions: no limit applies."""
        self._end_limits()
        self.records.publish(self.session)

    def _outcome(self) -> Outcome:
        return Outcome(status=self._status(), result=self.result)

    def _status(self) -> Status:
        result = self.result
        partial = any(item.status == Status.PARTIAL for item in result.actions)
        if result.failed or result.rest or partial or (self._is_plan and result.obsolete):
            return Status.PARTIAL
        if any(item.status == Status.DONE for item in result.actions):
            return Status.DONE
        return Status.ALREADY_RUNNING if result.left_to_another else Status.NOTHING_TO_DO


@dataclass(frozen=True, slots=True)
class _TableWork:
    """The work on one table."""

    round: Round
    session: Session
    result: RoundResult

    def maintain(self, seen: Candidate, *, is_due: bool) -> None:
        """Do what is due for a table; each decision uses the table as it is then."""
        tables, is_changed = self.round.tables, False
        now: Candidate | None = seen
        # It may have been seen hours ago, and another run may have done the work.
        if is_due and not self.session.has_ended:
            # After a stop that came too late for a commit, a silent catalog would count as a failure of the table.
            self.session.interrupts.checkpoint()
            now = self._seen(seen.table)
            if now is None and self._is_gone(seen.table):
                due = self.round.due_of(seen.table)
                self.result.obsolete += [replace(item, reason=_GONE) for item in due]
        order = order_of(seen)
        for number, action in enumerate(order):
            if now is None:
                break
            is_second = action in order[:number]
            if is_second and not is_changed:
                continue
            decision = tables.decide(now, action)
            if not decision.is_due:
                if not is_second:
                    self.result.left_alone.append(decision.facts())
                continue
            done = self._act(now, decision)
            now = done.seen and done.seen.following(now)
            is_changed = is_changed or done.is_changed
        self.round.leave(seen.table)

    def apply(self, actions: Sequence[PlannedAction], *, replan: bool) -> None:
        """Do what a plan contains for a table; what follows a commit of this run expects that commit."""
        base: Base | None = None
        now: Candidate | None = self._seen(actions[0].table)
        for number, planned in enumerate(actions):
            if now is None:
                self._leave_out(actions[number:])
                return
            decision = planned.decision(now)
            if reason := planned.replacement(now) or forbidden(now, planned.action):
                self.result.obsolete.append(decision.facts(reason))
            elif drift := "" if replan else planned.drift(now, base or planned.base):
                self.result.rest.append(decision.facts(drift))
            else:
                done = self._act(now, decision)
                now = done.seen
                base = now.base if now and done.is_changed else base

    def _leave_out(self, actions: Sequence[PlannedAction]) -> None:
        """Note actions of a plan that are not done, because the table is gone or nothing else is done to it now."""
        if self._is_gone(actions[0].table):
            self.result.obsolete += [item.facts(_GONE) for item in actions]
        else:
            reason = "the table could not be read, or nothing else is done to it in this run"
            self.result.rest += [item.facts(reason) for item in actions]

    def _seen(self, name: str) -> Candidate | None:
        """Return a table as it is now; None if it is gone or cannot be read."""
        namespace = name.rpartition(".")[0]
        try:
            table = load_listed(self.session.catalog, name)
            if table is None:
                return None
            self.session.work_on(table)
            for path in self.round.options.paths:
                refuse_inside(path, table)
            return self.round.tables.known(table, namespace, None)
        except LakeError as error:
            failure = FailureFacts(table=name, action=None, error=error.facts())
            self.result.failed.append(failure)
            return None

    def _act(self, seen: Candidate, decision: Decision) -> _Done:
        """Do an action, unless the budget is too small for it."""
        most = self._most_bytes(seen)
        with self.round.budget.granted(
            decision, most, self.session.interrupts.checkpoint
        ) as granted:
            if granted.refusal:
                self.result.rest.append(decision.facts(granted.refusal))
                return _Done(seen)
            self.session.next_command()
            self.session.warnings.clear()
            self.round.begin(decision)
            try:
                return self._done(seen, decision, granted.most_bytes)
            finally:
                self.round.end(decision)
                self.session.end_command()

    def _most_bytes(self, seen: Candidate) -> int | None:
        """Return the most bytes of data files that an action could rewrite; None if it is not known."""
        reading = seen.row.reading
        if self.round.jobs == 1 or reading.delete_files != 0:
            return None
        return reading.bytes

    def _done(self, seen: Candidate, decision: Decision, most_bytes: int | None) -> _Done:
        clock = self.session.clock
        options = {name: given.value for name, given in decision.options.items()}
        if most_bytes is not None:
            options["max-bytes"] = f"{most_bytes}B"
        begun = clock.monotonic()
        try:
            outcome = self._run(Call(decision.action, seen.table, options))
        except NotFoundError as error:
            if self._is_gone(seen.table):
                self.result.obsolete.append(decision.facts(_GONE))
                return _Done(None)
            return self._failed(seen, decision, error, clock.monotonic() - begun)
        except StoppedError as stop:
            self._add(seen, decision, stop, clock.monotonic() - begun, None)
            raise
        except OutOfTimeError as error:
            self._add(seen, decision, error, clock.monotonic() - begun, None)
            self.result.rest.append(decision.facts(error.message))
            return _Done(seen)
        except LakeError as error:
            return self._failed(seen, decision, error, clock.monotonic() - begun)
        seconds = clock.monotonic() - begun
        if outcome.status is Status.ALREADY_RUNNING:
            self.round.leave_to_another(self.result, decision, outcome.warnings)
            return _Done(None)
        if left := _left(outcome, has_ended=self.session.has_ended):
            self.result.rest.append(decision.facts(left))
        if busy := CompactionFacts.of(outcome.plan).busy_text:
            self.result.left_alone.append(decision.facts(busy))
        is_changed = outcome.status in {Status.DONE, Status.PARTIAL}
        after = self._seen(seen.table) if is_changed else seen
        self._add(seen, decision, outcome, seconds, after if is_changed else None)
        return _Done(after, is_changed)

    def _run(self, call: Call) -> Outcome:
        def run(*_: object) -> Outcome:
            return self.round.run_verb(self.session, call)

        if call.action != "stats":
            return run()
        # The command takes no lock, as it need not wait for a compaction. But two rounds would read the same rows.
        table = self.session.catalog.load(call.table)
        return with_table_lock(self.session, table, run, command=call.action, repeated=True)

    def _is_gone(self, name: str) -> bool:
        """Whether a table was dropped or renamed since the round began."""
        try:
            return not is_listed(self.session.catalog, name)
        except LakeError:
            return False

    def _failed(
        self, seen: Candidate, decision: Decision, error: LakeError, seconds: float
    ) -> _Done:
        if isinstance(error, EngineError):
            # Its process may have ended; the next action starts another one.
            self.session.close()
        self._add(seen, decision, error, seconds, None)
        failure = FailureFacts(table=seen.table, action=decision.action, error=error.facts())
        self.result.failed.append(failure)
        return _Done(None if error.kind in _ENDS_TABLE else seen)

    def _add(
        self,
        seen: Candidate,
        decision: Decision,
        ending: Outcome | ReportedError,
        seconds: float,
        after: Candidate | None,
    ) -> None:
        done = self.round.records.add(self.session, seen, decision, ending, seconds, after)
        self.round.budget.spend(done.bytes)
        self.result.actions.append(done)


def _left(outcome: Outcome, *, has_ended: bool) -> str:
    """Return what an action left for the next run because of a budget; empty if it left nothing."""
    files = CompactionFacts.of(outcome.plan).remaining_files
    groups = CompactionResult.of(outcome.result).failed_groups if has_ended else 0
    is_cut = has_ended and outcome.status is Status.PARTIAL
    if groups:
        return f"the time has ended, and groups of files are left: {groups:,}"
    if files:
        return f"files are left: {files:,}"
    return "the time has ended, and a part is left" if is_cut else ""
