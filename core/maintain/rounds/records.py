"""Record an action: for the outcome of the round, and for the run log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base.errors import LakeError, ReportedError
from lake.core.base.outcome import Outcome
from lake.core.base.process_identity import host_name
from lake.core.base.units import iso_time
from lake.core.maintain.compaction.facts import CompactionResult
from lake.core.maintain.delete_conversion.facts import ConversionFacts, RewriteFacts
from lake.core.maintain.rounds.candidates import Candidate, expected
from lake.core.maintain.rounds.facts import ActionFacts
from lake.core.maintain.run_log.entries import Entry
from lake.core.maintain.run_log.run_log import RunLog, without_log

if TYPE_CHECKING:
    from lake.core.maintain.rounds.decisions import Decision
    from lake.core.maintain.rounds.options import RoundOptions
    from lake.core.transaction.session import Session

# The keys that a line of the log shares with the outcome.
_LOGGED = (
    *("table", "action", "status", "seconds", "bytes", "forecast", "before", "after"),
    *("operation_id", "snapshot_ids"),
)


@dataclass(frozen=True, slots=True)
class Records:
    """Where actions are recorded.

    Args:
        options: the options of the round.
        run: the id of the run.
        problems: why actions could not be appended to the log.
        entries: the entries of the run, for the table of runs.
    """

    options: RoundOptions
    run: str
    problems: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def add(
        self,
        session: Session,
        seen: Candidate,
        decision: Decision,
        ending: Outcome | ReportedError,
        seconds: float,
        after: Candidate | None,
    ) -> ActionFacts:
        """Append an action to the log and return it.

        Args:
            session: the session of the action, whose warnings belong to it.
            seen: the table before.
            decision: the action and why it was due.
            ending: how it ended.
            seconds: how long it took.
            after: the table after; None if it did not change or cannot be read.
        """
        outcome = ending if isinstance(ending, Outcome) else None
        facts = ActionFacts(
            table=seen.table,
            action=decision.action,
            status=str(ending.status),
            seconds=round(seconds, 3),
            reason=decision.reason,
            forecast=expected(decision.forecast),
            before=seen.measures(),
            after=None if after is None else after.measures(),
            bytes=None if outcome is None else _rewritten_bytes(outcome),
            operation_id=ending.operation_id,
            snapshot_ids=[str(item) for item in outcome.snapshot_ids] if outcome else (),
            warnings=[*(outcome.warnings if outcome else ()), *session.warnings],
            error=None if isinstance(ending, Outcome) else ending.facts(),
        )
        self._append(session, seen, facts)
        return facts

    def _append(self, session: Session, seen: Candidate, facts: ActionFacts) -> None:
        error, clean = facts.error, self.options.clean
        if error is not None:
            hint = error.hint and clean(error.hint)
            error = replace(error, message=clean(error.message), hint=hint)
        entry = Entry(
            at=iso_time(session.clock.now_ms()) or "",
            run=self.run,
            host=host_name(),
            catalog=session.catalog.name,
            table_uuid=seen.uuid,
            error=error,
            store=seen.store,
            **{name: getattr(facts, name) for name in _LOGGED},
        )
        self.entries.append(entry)
        try:
            RunLog(self.options.log).append(entry)
        except LakeError as problem:
            # The work is done; without its entry, the next round knows less.
            text = f"{problem.message}; {without_log('the next run')}"
            if text not in self.problems:
                session.warn(text)
            self.problems.append(text)

    def publish(self, session: Session) -> None:
        """Append the entries of the run to the table of runs, if there is one; a failure becomes a warning."""
        name, entries = self.options.runs_table, list(self.entries)
        self.entries.clear()
        if name is None or not entries:
            return
        # Rounds that do not write such a table need no writer of rows.
        from lake.core.maintain.run_log.runs_table import append_runs  # noqa: PLC0415

        try:
            append_runs(session, name, entries)
        except LakeError as problem:
            hint = f" ({problem.hint})" if problem.hint else ""
            text = f"the runs were not appended to the table {name}: {problem.message}{hint}"
            session.warn(text)
            self.problems.append(text)


def _rewritten_bytes(outcome: Outcome) -> int | None:
    """Return the bytes of data files that a rewrite read; None for an action that reads none."""
    if isinstance(outcome.result, CompactionResult):
        return outcome.result.rewritten_bytes
    if isinstance(outcome.plan, ConversionFacts | RewriteFacts):
        return outcome.plan.input_bytes
    return None
