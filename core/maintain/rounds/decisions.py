"""Decide whether an action on a table is due, and say why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.core.base.units import format_duration, format_time
from lake.core.maintain.health.grade import LEAST_SHARE
from lake.core.maintain.health.past import work_seconds
from lake.core.maintain.policies.policy import Given
from lake.core.maintain.rounds.candidates import condition_values, expected
from lake.core.maintain.rounds.facts import DecisionFacts

if TYPE_CHECKING:
    from lake.core.maintain.health.facts import ForecastFacts
    from lake.core.maintain.policies.policy import ActionPolicy
    from lake.core.maintain.rounds.candidates import Candidate
    from lake.core.maintain.run_log.experience import Experience

# Orphan files cost storage and nothing else, and finding them takes a listing of the table's folders.
_CLEAN_EVERY_MS = 7 * 24 * 3_600_000
# Planners use estimates: statistics are computed again if this share of the rows changed.
_STALE = 0.2
_OWN = "maintain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether an action is due."""

    table: str
    action: str
    is_due: bool
    reason: str
    options: Mapping[str, Given]
    forecast: ForecastFacts | None = None
    took: float | None = None
    """The seconds that it took last; None if that is not known."""

    @property
    def takes(self) -> float | None:
        """The seconds that it is expected to take, by its forecast, or as last time; None if that is not known."""
        return self.took if self.forecast is None else self.forecast.work_seconds

    @property
    def work_seconds(self) -> float:
        """Roughly the seconds that it takes."""
        return work_seconds(0) if self.takes is None else self.takes

    def facts(self, reason: str | None = None) -> DecisionFacts:
        """Return the decision for the outcome, maybe with another reason."""
        return DecisionFacts(
            table=self.table,
            action=self.action,
            reason=reason or self.reason,
            forecast=expected(self.forecast),
        )


def decide(
    seen: Candidate, action: str, experience: Experience, now_ms: int, *, only: Sequence[str]
) -> Decision:
    """Decide about an action on a table.

    Args:
        seen: what is known of the table.
        action: the action.
        experience: what the run log contains of it.
        now_ms: the time, in ms since 1970.
        only: the actions that were asked for; empty for all.
    """
    policy = seen.policy.actions[action]
    options = {**_defaults(seen, action, policy.options), **policy.options}
    is_needed, reason = _need(seen, action, policy, experience, now_ms)
    if only and action not in only:
        is_needed, reason = False, "it was not asked for"
    elif no := forbidden(seen, action):
        is_needed, reason = False, no
    elif (kinds := _KINDS.get(action)) and not any(_is_on(options, kind) for kind in kinds):
        is_needed, reason = False, f"its policy chooses neither {' nor '.join(kinds)}"
    elif is_needed and (hindrance := _hindrance(policy, experience, now_ms)):
        is_needed, reason = False, hindrance
    return Decision(
        table=seen.table,
        action=action,
        is_due=is_needed,
        reason=reason,
        options=options,
        forecast=seen.forecast(action),
        took=experience.seconds,
    )


def forbidden(seen: Candidate, action: str) -> str:
    """Return why the policy of a table forbids an action; empty if it does not."""
    place = seen.policy.actions[action].forbidden_by
    return place and f"{place} is false"


def _need(
    seen: Candidate, action: str, policy: ActionPolicy, experience: Experience, now_ms: int
) -> tuple[bool, str]:
    if policy.when is not None:
        holds = policy.when.holds(condition_values(seen.row, now_ms)) is True
        return holds, f"{policy.when} is {'true' if holds else 'not true'}"
    if action == "clean":
        return _is_time(experience, policy.every_ms or _CLEAN_EVERY_MS, now_ms)
    if action == "stats":
        if seen.statistics is None:
            return False, "the table has no statistics of columns"
        if seen.statistics.has_expired:
            return True, "the last statistics expired with their snapshot"
        changed = f"{seen.statistics.changed:.0%} of the rows changed since the last statistics"
        return seen.statistics.changed >= _STALE, changed
    if action == "expire" and experience.is_unfinished:
        # The files of a commit, which no forecast contains.
        return True, "the last run did not delete all files"
    return _pays(seen, action)


def _pays(seen: Candidate, action: str) -> tuple[bool, str]:
    forecast = seen.forecast(action)
    if forecast is None:
        return False, (seen.busy if action == "compact" else "") or "nothing to do"
    scan, part = seen.row.scan, seen.row.partition_scan
    saved, of = forecast.seconds, scan.seconds if scan else 0.0
    what = "a scan"
    if part is not None and forecast.partition_seconds is not None:
        by_part = forecast.partition_seconds / max(part.seconds, 1e-9)
        if by_part > saved / max(of, 1e-9):
            saved, of, what = forecast.partition_seconds, part.seconds, "a scan of a partition"
    text = f"saves {what} {saved:.2g} of {of:.2g} s"
    if forecast.pays and saved < LEAST_SHARE * of:
        text = f"{forecast.before - forecast.after:,} expired"
    return forecast.pays, text if forecast.pays else f"not worth it: {text}"


def _is_time(experience: Experience, every_ms: int, now_ms: int) -> tuple[bool, str]:
    every = format_duration(every_ms / 1000)
    if experience.done_ms is None:
        return True, "not done before"
    is_due = now_ms - experience.done_ms >= every_ms
    return is_due, f"last done at {format_time(experience.done_ms)}, due every {every}"


def _hindrance(policy: ActionPolicy, experience: Experience, now_ms: int) -> str:
    """Return what forbids a needed action now; empty if nothing does."""
    if policy.window is not None and not policy.window.is_open(now_ms):
        return f"the window {policy.window} is closed"
    if experience.done_ms is not None and policy.every_ms is not None:
        is_due, reason = _is_time(experience, policy.every_ms, now_ms)
        if not is_due:
            return reason
    until = experience.wait_until_ms
    if until is not None and now_ms < until:
        return f"{experience.reason}; it is tried again at {format_time(until)}"
    return ""


# What the verb does to the table; without one of these it only lists.
_KINDS: Mapping[str, Sequence[str]] = {
    "deletes": ("rewrite", "convert"),
    "clean": ("quarantine", "delete"),
}


def _is_on(options: Mapping[str, Given], name: str) -> bool:
    """Whether a switch is given and on; a table property has it as a text."""
    return name in options and str(options[name].value).lower() == "true"


def _defaults(seen: Candidate, action: str, chosen: Mapping[str, Given]) -> Mapping[str, Given]:
    """Return the options that an action has unless its policy chooses others."""
    found: dict[str, Any] = {}
    if action == "compact":
        # What is committed stays when the time has ended, and a small commit loses less in a conflict.
        found = {"partial-progress": True}
    elif action == "deletes" and not _is_on(chosen, "convert") and not _is_on(chosen, "rewrite"):
        found = {"convert" if seen.row.reading.equality_delete_files else "rewrite": True}
    elif action == "clean" and not _is_on(chosen, "delete"):
        found = {"quarantine": True}
    elif action == "stats" and seen.statistics is not None and not _is_on(chosen, "partitions"):
        found = {"select": list(seen.statistics.columns)}
    return {name: Given(value, _OWN) for name, value in found.items()}
