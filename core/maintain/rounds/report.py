"""Show what a round would do or did, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base.outcome import Detail, Explanation, Outcome, Status, first_rows
from lake.core.maintain.policies.policy import ACTIONS
from lake.core.maintain.rounds.facts import ALL_ACTIONS, RoundFacts, RoundResult, WrittenFacts

if TYPE_CHECKING:
    from lake.core.maintain.rounds.facts import DecisionFacts, FailureFacts, PendingFacts

_SHOWN = 50
_DUE = ("table", "action", "before", "after", "bytes", "reason")


def preview_outcome(
    plan: RoundFacts,
    *,
    verbose: bool,
    is_written: bool,
    is_policy: bool = False,
    explain: bool = False,
) -> Outcome:
    """Return the outcome of a dry run, or of a run that wrote its plan or a policy to a file.

    Args:
        plan: what is due.
        verbose: also list each action that is left alone.
        is_written: whether a file was written.
        is_policy: whether it was a policy, which is complete although tables could not be read.
        explain: show the number of actions that are left alone for each reason, and with `verbose` each of them with
            its forecast.
    """
    due, more = first_rows([_due(item) for item in plan.due], _SHOWN, "actions", every=verbose)
    details = [Detail("what is due", _DUE, due, first=("table", "action", "reason"))]
    if not explain:
        details += _left_alone(plan.left_alone, verbose=verbose)
    status = Status.DONE if is_written else Status.DRY_RUN
    if plan.failed and not is_policy:
        status = Status.PARTIAL
    if is_written:
        plan = WrittenFacts(**plan.values())
    notes = [*more, *_failures(plan.failed), *_pending(plan.pending)]
    outcome = Outcome(status=status, plan=plan, details=details, notes=notes)
    return _explained(plan.left_alone).explain(outcome, verbose=verbose) if explain else outcome


def with_details(outcome: Outcome, *, verbose: bool) -> Outcome:
    """Return the outcome of a round with what is left and what failed."""
    result = RoundResult.of(outcome.result)
    rest, more = first_rows([_due(item) for item in result.rest], _SHOWN, "rows", every=verbose)
    obsolete = [(item.table, item.action, item.reason) for item in result.obsolete]
    details = [
        Detail("what is left", _DUE, rest, first=("table", "action", "reason")),
        Detail("what is not possible any more", ("table", "action", "reason"), obsolete),
    ]
    details += _left_alone(result.left_alone if verbose else result.left_to_another, verbose=True)
    notes = [*more, *_failures(result.failed), *_pending(result.pending)]
    return replace(outcome, details=details, notes=notes)


def _due(item: DecisionFacts) -> tuple[object, ...]:
    forecast = item.forecast
    numbers = (forecast.before, forecast.after, forecast.bytes) if forecast else (None, None, None)
    return (item.table, item.action, *numbers, item.reason)


def _left_alone(found: Sequence[DecisionFacts], *, verbose: bool) -> list[Detail]:
    """Return why actions are not due: each of them, or the number for each action and kind of reason."""
    joined = _joined(found)
    if verbose:
        rows: list[tuple[object, ...]] = [(item.table, item.action, item.reason) for item in joined]
        return [Detail("left alone", ("table", "action", "reason"), rows)]
    counts = Counter((item.action, item.reason.partition(": ")[0]) for item in joined)
    rows = [(action, count, reason) for (action, reason), count in counts.most_common(_SHOWN)]
    return [Detail("left alone", ("action", "tables", "reason"), rows)]


def _explained(found: Sequence[DecisionFacts]) -> Explanation:
    """Return why actions are left alone: the kinds of reasons, the tables of each, and what the actions would do."""
    counts = Counter((item.reason.partition(": ")[0], item.action) for item in found)
    return Explanation(
        noun="actions",
        columns=("reason", "action", "tables"),
        groups=[(*kind, count) for kind, count in counts.most_common()],
        item_columns=("reason", *_DUE[:-1]),
        items=lambda: ((item.reason, *_due(item)[:-1]) for item in found),
    )


def _joined(found: Sequence[DecisionFacts]) -> list[DecisionFacts]:
    """Return the decisions with one row for a table whose actions are all left alone for the same reason."""
    reasons: dict[str, set[str]] = {}
    actions: dict[str, set[str]] = {}
    for item in found:
        reasons.setdefault(item.table, set()).add(item.reason)
        actions.setdefault(item.table, set()).add(item.action)
    rows = {}
    for item in found:
        is_one = len(reasons[item.table]) == 1 and actions[item.table] == set(ACTIONS)
        rows[item.table, "" if is_one else item.action] = (
            replace(item, action=ALL_ACTIONS) if is_one else item
        )
    return list(rows.values())


def _failures(failed: Sequence[FailureFacts]) -> list[str]:
    """Return a line for each failure: unlike the rows of tables, notes are printed without secrets."""
    return [
        f"{' '.join(filter(None, (item.action, item.table)))}: {item.error.message}"
        + (f" ({item.error.hint})" if item.error.hint else "")
        for item in failed
    ]


def _pending(pending: Sequence[PendingFacts]) -> list[str]:
    return [
        f"{item.table} has {item.checkpoints:,} checkpoints that were never committed: lake replay {item.table}"
        for item in pending
    ]
