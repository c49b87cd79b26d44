"""One round: look at all tables at once, then give each the actions that are due, those that save most first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake.core.base.errors import (
    EngineError,
    LakeError,
    NotATableError,
    NotFoundError,
    ReportedError,
    StoppedError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.base.process_identity import host_name
from lake.core.base.progress import Meter, shown
from lake.core.base.units import iso_time
from lake.core.io.storage.work_ahead import ahead
from lake.core.maintain.compaction.facts import CompactionFacts, CompactionResult
from lake.core.maintain.delete_conversion.facts import ConversionFacts, RewriteFacts
from lake.core.maintain.health.measure import selected
from lake.core.maintain.health.survey import MOST_ENTRIES
from lake.core.maintain.rounds.budget import Budget
from lake.core.maintain.rounds.candidates import Candidate, expected, look
from lake.core.maintain.rounds.decisions import Decision, decide
from lake.core.maintain.rounds.facts import (
    ActionFacts,
    FailureFacts,
    PendingFacts,
    RoundFacts,
    RoundResult,
)
from lake.core.maintain.rounds.options import Call, RoundOptions, RunVerb
from lake.core.maintain.run_log.entries import Entry
from lake.core.maintain.run_log.experience import Experiences
from lake.core.maintain.run_log.run_log import RunLog
from lake.core.table.catalogs.names import is_listed, load_listed, require_existing

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# More would wait for Python's lock, and each has the entries of a table in memory.
_THREADS = 8
# Snapshots that an action replaced may be old enough for the second expiry.
_SEQUENCE = ("expire", "compact", "deletes", "manifests", "expire", "clean", "stats")
_FIRST = ("expire", "compact", "deletes", "manifests", "clean", "stats")
# Nothing else is done to a table after these: its state is not known, or belongs to another run.
_ENDS_TABLE = frozenset({"unknown", "locked"})


def maintain(session: Session, run_verb: RunVerb, options: RoundOptions) -> Outcome:
    """Give each table the maintenance that it needs.

    A table or an action that fails does not stop the others.

    Args:
        session: the session; its engine is started once for all tables that need it.
        run_verb: runs a verb on a table.
        options: the options.

    Raises:
        NotFoundError: a pattern selects nothing, or the catalog does not exist.
        StorageError: the run log cannot be read.
        LakeError: the catalog cannot be read.
        StoppedError: the user stopped the run; its result contains what was done.
    """
    return _Round(session, run_verb, options).run()


def preview(session: Session, options: RoundOptions) -> RoundFacts:
    """Return what is due, in the order in which it would be done; nothing is changed.

    Decisions use the tables as they are now. A round decides again after each action.

    Raises:
        NotFoundError: a pattern selects nothing, or the catalog does not exist.
        StorageError: the run log cannot be read.
        LakeError: the catalog cannot be read.
    """
    found = _Tables(session, options)
    candidates = found.ordered()
    decisions = [found.decide(seen, action) for seen in candidates for action in _FIRST]
    return RoundFacts(
        tables=len(candidates),
        due=[item.facts() for item in decisions if item.is_due],
        left_alone=[item.facts() for item in decisions if not item.is_due],
        pending=found.pending,
        failed=found.failed,
    )


class _Tables:
    """All tables that were selected, as they were when the round began."""

    def __init__(self, session: Session, options: RoundOptions) -> None:
        self.pending: list[PendingFacts] = []
        self.failed: list[FailureFacts] = []
        self._session = session
        self._options = options
        self._now_ms = session.clock.now_ms()
        logged = RunLog(options.log).read()
        if logged.unreadable:
            session.warn(f"{options.log} contains {logged.unreadable:,} lines that are not entries")
        self._experiences = Experiences(logged.entries, self._now_ms)

    def ordered(self) -> list[Candidate]:
        """Return the tables, those first that gain most for each second of work."""
        require_existing(self._session.catalog)
        names, unlisted = selected(self._session.catalog, self._options.patterns)
        self.failed += [
            FailureFacts(table=row.namespace, action=None, error=row.error)
            for row in unlisted
            if row.error
        ]
        candidates = []
        meter = Meter("reading tables", tasks=len(names))
        with (
            shown(self._session.progress, meter),
            ThreadPoolExecutor(_THREADS) as threads,
        ):
            for found in ahead(threads, self._one, names, 2 * _THREADS):
                meter.advance(tasks=1)
                if isinstance(found, FailureFacts):
                    self.failed.append(found)
                elif found is not None:
                    candidates.append(found)
        self.pending += [
            PendingFacts(table=seen.table, checkpoints=seen.pending)
            for seen in candidates
            if seen.pending
        ]
        self.failed += [
            FailureFacts(table=seen.table, action="replay", error=seen.replay_error)
            for seen in candidates
            if seen.replay_error
        ]
        candidates.sort(key=lambda seen: (-seen.gain_per_second, seen.table))
        return candidates

    def _one(self, item: tuple[str, str]) -> Candidate | FailureFacts | None:
        namespace, name = item
        try:
            table = load_listed(self._session.catalog, name)
            return None if table is None else self.seen(table, namespace, MOST_ENTRIES)
        except NotATableError:
            return None
        except LakeError as error:
            return FailureFacts(table=name, action=None, error=error.facts())

    def seen(self, table: Table, namespace: str, most_entries: int | None) -> Candidate:
        """Look at a table.

        Raises:
            LakeError: it cannot be read, or a property has a value that is not allowed.
        """
        policy = self._options.policy.of(table.identifier, table.properties, self._options.choices)
        found = look(table, namespace, policy, self._now_ms, most_entries=most_entries)
        try:
            return replace(found, pending=self._options.pending(table))
        except LakeError as error:
            return replace(found, replay_error=error.facts())

    def decide(self, seen: Candidate, action: str) -> Decision:
        """Decide about an action on a table."""
        experience = self._experiences.of(seen.uuid, action)
        now_ms = self._session.clock.now_ms()
        return decide(seen, action, experience, now_ms, only=self._options.only)


@dataclass(slots=True)
class _Done:
    """How an action ended, and the table after it: None if nothing more is done to it."""

    seen: Candidate | None
    is_changed: bool = False


class _Round:
    def __init__(self, session: Session, run_verb: RunVerb, options: RoundOptions) -> None:
        self._session = session
        self._run_verb = run_verb
        self._options = options
        self._tables = _Tables(session, options)
        self._log = RunLog(options.log)
        self._budget = Budget(session.clock, options.max_ms, options.max_bytes)
        # The warnings of the run as a whole; each action has its own.
        self._general: list[str] = []
        self.result = RoundResult(run=session.ids.uuid())

    def run(self) -> Outcome:
        self._session.until = self._budget.until
        try:
            candidates = self._tables.ordered()
            self._general += self._session.warnings
            self.result.tables = len(candidates)
            self.result.pending += self._tables.pending
            self.result.failed += self._tables.failed
            for seen in candidates:
                self._one(seen)
        except StoppedError as stop:
            stop.result = self.result
            raise
        finally:
            self._session.until = None
            self._session.warnings[:] = self._general
        return Outcome(status=self._status(), result=self.result)

    def _status(self) -> Status:
        result = self.result
        partial = any(item.status == Status.PARTIAL for item in result.actions)
        if result.failed or result.rest or partial:
            return Status.PARTIAL
        done = any(item.status == Status.DONE for item in result.actions)
        return Status.DONE if done else Status.NOTHING_TO_DO

    def _one(self, seen: Candidate) -> None:
        """Do what is due for a table; each decision uses the table as it is then."""
        is_changed = False
        now: Candidate | None = self._complete(seen)
        for number, action in enumerate(_SEQUENCE):
            if now is None:
                return
            is_second = action in _SEQUENCE[:number]
            if is_second and not is_changed:
                continue
            decision = self._tables.decide(now, action)
            if not decision.is_due:
                if not is_second:
                    self.result.left_alone.append(decision.facts())
                continue
            if refusal := self._budget.refusal(decision):
                self.result.rest.append(decision.facts(refusal))
                continue
            done = self._act(now, decision)
            now, is_changed = done.seen, is_changed or done.is_changed

    def _complete(self, seen: Candidate) -> Candidate | None:
        """Return a table with its grade: one with very many files is measured alone."""
        return seen if seen.row.grade is not None else self._again(seen)

    def _again(self, seen: Candidate) -> Candidate | None:
        """Look at a table again; None if it is gone or cannot be read."""
        try:
            table = load_listed(self._session.catalog, seen.table)
            return None if table is None else self._tables.seen(table, seen.namespace, None)
        except LakeError as error:
            failure = FailureFacts(table=seen.table, action=None, error=error.facts())
            self.result.failed.append(failure)
            return None

    def _act(self, seen: Candidate, decision: Decision) -> _Done:
        clock = self._session.clock
        self._session.next_command()
        self._session.warnings.clear()
        options = {name: given.value for name, given in decision.options.items()}
        limit = self._budget.limit(decision.action)
        if limit is not None:
            options["max-bytes"] = f"{limit}B"
        begun = clock.monotonic()
        try:
            outcome = self._run_verb(Call(decision.action, seen.table, options))
        except NotFoundError as error:
            if self._is_gone(seen.table):
                return _Done(None)
            return self._failed(seen, decision, error, clock.monotonic() - begun)
        except StoppedError as stop:
            self._record(seen, decision, stop, clock.monotonic() - begun, None)
            raise
        except LakeError as error:
            return self._failed(seen, decision, error, clock.monotonic() - begun)
        seconds = clock.monotonic() - begun
        if outcome.status is Status.ALREADY_RUNNING:
            reason = "another run of lake works on the table"
            self.result.left_alone.append(decision.facts(reason))
            return _Done(None)
        if left := CompactionFacts.of(outcome.plan).remaining_files:
            self.result.rest.append(decision.facts(f"{left:,} files are left"))
        elif outcome.status is Status.PARTIAL and self._session.is_over:
            self.result.rest.append(decision.facts("the time of the run is over"))
        is_changed = outcome.status in {Status.DONE, Status.PARTIAL}
        after = self._again(seen) if is_changed else seen
        self._record(seen, decision, outcome, seconds, after if is_changed else None)
        return _Done(after, is_changed)

    def _is_gone(self, name: str) -> bool:
        """Whether a table was dropped or renamed since the round began."""
        try:
            return not is_listed(self._session.catalog, name)
        except LakeError:
            return False

    def _failed(
        self, seen: Candidate, decision: Decision, error: LakeError, seconds: float
    ) -> _Done:
        if isinstance(error, EngineError):
            # Its process may have ended; the next action starts another one.
            self._session.close()
        self._record(seen, decision, error, seconds, None)
        failure = FailureFacts(table=seen.table, action=decision.action, error=error.facts())
        self.result.failed.append(failure)
        return _Done(None if error.kind in _ENDS_TABLE else seen)

    def _record(
        self,
        seen: Candidate,
        decision: Decision,
        ending: Outcome | ReportedError,
        seconds: float,
        after: Candidate | None,
    ) -> None:
        outcome = ending if isinstance(ending, Outcome) else None
        error = None if isinstance(ending, Outcome) else ending.facts()
        rewritten = None if outcome is None else _rewritten_bytes(outcome)
        self._budget.spend(rewritten)
        facts = ActionFacts(
            table=seen.table,
            action=decision.action,
            status=str(ending.status),
            seconds=round(seconds, 3),
            reason=decision.reason,
            forecast=expected(decision.forecast),
            before=seen.measures(),
            after=None if after is None else after.measures(),
            bytes=rewritten,
            operation_id=ending.operation_id,
            snapshot_ids=[str(item) for item in outcome.snapshot_ids] if outcome else (),
            warnings=[*(outcome.warnings if outcome else ()), *self._session.warnings],
            error=error,
        )
        self.result.actions.append(facts)
        self._append(seen, facts)

    def _append(self, seen: Candidate, facts: ActionFacts) -> None:
        error, clean = facts.error, self._options.clean
        if error is not None:
            hint = error.hint and clean(error.hint)
            error = replace(error, message=clean(error.message), hint=hint)
        entry = Entry(
            at=iso_time(self._session.clock.now_ms()) or "",
            run=self.result.run,
            host=host_name(),
            catalog=self._session.catalog.name,
            table_uuid=seen.uuid,
            error=error,
            **{name: getattr(facts, name) for name in _LOGGED},
        )
        try:
            self._log.append(entry)
        except LakeError as problem:
            # The work is done; without its entry, the next round knows less.
            self._session.warn(problem.message)
            self._general.append(problem.message)


_LOGGED = (
    *("table", "action", "status", "seconds", "bytes", "forecast", "before", "after"),
    *("operation_id", "snapshot_ids"),
)


def _rewritten_bytes(outcome: Outcome) -> int | None:
    """Return the bytes of data files that a rewrite read; None for an action that reads none."""
    if isinstance(outcome.result, CompactionResult):
        return outcome.result.rewritten_bytes
    if isinstance(outcome.plan, ConversionFacts | RewriteFacts):
        return outcome.plan.input_bytes
    return None
