"""One compaction of a table: when it is due, under the table's lock, and planned from the table as it is then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base.facts import Facts
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.compaction.facts import CompactionFacts
from lake.core.maintain.compaction.options import compaction_options, idle_options
from lake.core.maintain.compaction.plan import plan_compaction
from lake.core.maintain.compaction.triggers import (
    parse_trigger,
    since_compaction,
    why_nothing_was_compacted,
)
from lake.core.spec.expressions.conditions import ConditionFacts, Evaluation
from lake.core.table.snapshots import ancestry
from lake.core.transaction.locks.table_lock import with_table_lock

if TYPE_CHECKING:
    from lake.core.maintain.compaction.plan import CompactionPlan
    from lake.core.spec.expressions.conditions import Condition
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# Imported by workers while Spark starts, but by this process only when it executes a plan.
_TASKS = "lake.core.maintain.compaction.tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction rewrites, and when.

    Args:
        session: the session.
        branch: the branch.
        chosen: lake's options that were given, see `compaction_options`.
        spark: options by the names of Spark's rewrite_data_files.
        idle_ms: leave partitions alone that changed within this time; 0 for none; None for the rhythm of the writers
            that change rows.
        condition: compact only if it is true; None to compact always.
        wait_ms: how long to wait for another run that holds the table's lock; None not to wait.
    """

    session: Session
    branch: str
    chosen: Mapping[str, object] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    idle_ms: int | None = 0
    condition: Condition | None = None
    wait_ms: int | None = None

    def preview(self, table: Table, *, explain: bool = False) -> Outcome:
        """Describe what `run` would do; nothing is written.

        Args:
            table: the table.
            explain: also list the files that are left alone.

        Raises:
            InvalidRequestError: options contradict each other.
        """
        from lake.core.maintain.compaction.execute import preview  # noqa: PLC0415 - as in _execute

        self._refuse_contradictions(table)
        verbose = self.session.settings.verbose
        return self._when_due(
            table, lambda: preview(self._plan(table), verbose=verbose, explain=explain)
        )

    def run(self, table: Table) -> Outcome:
        """Compact the table, if that is due.

        The condition is evaluated before the lock is taken, and again after it: the run that held the lock may have
        compacted the table.

        Raises:
            InvalidRequestError: options contradict each other; also if the compaction is not due.
            LockedError: another run held the lock for the whole wait; nothing was done.
        """
        self._refuse_contradictions(table)

        def work(now: Table, operation_id: str) -> Outcome:
            return self._when_due(now, lambda: self._execute(self._plan(now), operation_id))

        return self._when_due(
            table,
            lambda: with_table_lock(
                self.session,
                table,
                work,
                command="compact",
                branch=self.branch,
                wait_ms=self.wait_ms,
                repeated=True,
            ),
        )

    def _execute(self, plan: CompactionPlan, operation_id: str) -> Outcome:
        if plan.groups:
            self.session.engine(plan.input_bytes).start_in_background([_TASKS])
        # Takes half a second of processor time, in which Spark starts.
        from lake.core.maintain.compaction.execute import execute  # noqa: PLC0415

        return execute(self.session, plan, operation_id)

    def _refuse_contradictions(self, table: Table) -> None:
        compaction_options(self.chosen, self.spark, table.properties)

    def _plan(self, table: Table) -> CompactionPlan:
        # The time is read when the lock is held: other runs may have worked for long.
        chosen = {**self.chosen, **idle_options(self.idle_ms, self.session.clock.now_ms())}
        options = compaction_options(chosen, self.spark, table.properties)
        return plan_compaction(
            table,
            options,
            branch=self.branch,
            engine_of=self.session.planning_engine,
        )

    def _when_due(self, table: Table, compact: Callable[[], Outcome]) -> Outcome:
        """Compact if the condition is true, or if there is none; the outcome's plan contains the counts."""
        if self.condition is None:
            return compact()
        now_ms = self.session.clock.now_ms()
        values = since_compaction(table.metadata, branch=self.branch, now_ms=now_ms)
        evaluation = Evaluation(self.condition, values)
        if evaluation.is_due:
            outcome = compact()
            return replace(outcome, plan=_with_condition(outcome.plan, evaluation.facts()))
        return Outcome(
            status=Status.NOTHING_TO_DO,
            base_snapshot_id=ancestry.head_id(table.metadata, self.branch),
            plan=evaluation.facts(),
        )


def _with_condition(plan: Facts, condition: ConditionFacts) -> Facts:
    """Return the plan of a compaction that was due; what was found under the lock is newer."""
    if isinstance(plan, CompactionFacts):
        return replace(plan, condition=plan.condition or condition)
    return plan if isinstance(plan, ConditionFacts) else condition


def compaction_after_epochs(
    session: Session, table: str, when: str, *, branch: str, quiet: bool
) -> Callable[[], Outcome]:
    """Return a function that compacts a table if that is due, for a load that calls it after each of its epochs.

    Args:
        session: the session.
        table: the table's name.
        when: the condition.
        branch: the branch.
        quiet: do not say why nothing was compacted although the condition is true.

    Raises:
        InvalidRequestError: `when` is not a condition.
    """
    condition = parse_trigger(when, option=Option.THEN_COMPACT)
    compaction = Compaction(session=session, branch=branch, condition=condition)
    reported: list[set[str]] = []

    def compact() -> Outcome:
        outcome = compaction.run(session.table(table))
        reason = why_nothing_was_compacted(outcome)
        alone = set(CompactionFacts.of(outcome.plan).left_alone)
        if reason is not None and alone not in reported and not quiet:
            reported.append(alone)
            session.note(reason, {"left_alone": ", ".join(sorted(alone))})
        return outcome

    return compact
