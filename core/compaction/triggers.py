"""Conditions for a compaction: counts of what was committed since the last one, read from snapshot summaries.

An expression is ``NAME >= N or NAME > N …``. Only table metadata is read, so cron may ask every minute. Names and
their meaning follow Flink's TableMaintenance (``TriggerEvaluator``), which counts what arrived since the last
trigger. Here the last compaction is the newest ``replace`` snapshot of the branch, no matter which program
committed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lake.core.errors import InvalidRequestError
from lake.core.expressions.conditions import parse_terms
from lake.core.options import Option
from lake.core.outcome import Outcome, Status
from lake.core.snapshots import ancestry
from lake.core.units import natural_number, parse_duration_ms, parse_size

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table

COMMITS, AGE, BYTES = "commits", "age", "bytes"
# The summary's key for each name that counts what snapshots added.
_ADDED = {
    "files": "added-data-files",
    "rows": "added-records",
    BYTES: "added-files-size",
    "position-deletes": "added-position-deletes",
    "equality-deletes": "added-equality-deletes",
}
NAMES = (COMMITS, *_ADDED, AGE)
_HINT = (
    f"write it as 'files >= 1000 or bytes >= 10GB or age >= 1h'; the names are {', '.join(NAMES)}"
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A condition: a count must reach `limit`. Units: bytes for ``bytes``, milliseconds for ``age``."""

    name: str
    limit: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The counts since the last compaction.

    Args:
        triggers: the conditions.
        values: the count of each name; None if the last compaction is older than the table's history, so that
            its age is not known. The other counts are then the least that they can be.
    """

    triggers: tuple[Trigger, ...]
    values: Mapping[str, int | None]

    @property
    def is_due(self) -> bool:
        """Whether a condition holds."""
        return any(
            (value := self.values[trigger.name]) is None or value >= trigger.limit
            for trigger in self.triggers
        )

    def facts(self) -> dict[str, Any]:
        """Return ``{name: [count, limit]}`` for the outcome."""
        return {item.name: [self.values[item.name], item.limit] for item in self.triggers}


def parse_triggers(when: str) -> tuple[Trigger, ...]:
    """Return the conditions of an expression.

    Raises:
        InvalidRequestError: it is not such an expression, or contains a name twice.
    """
    return tuple(
        Trigger(term.name, _limit(term.name, term.limit) + term.is_strict)
        for term in parse_terms(when, NAMES, option=Option.WHEN, hint=_HINT)
    )


def evaluate_triggers(
    metadata: TableMetadata, triggers: tuple[Trigger, ...], *, branch: str, now_ms: int
) -> Evaluation:
    """Count what a branch received since its last compaction.

    Raises:
        NotFoundError: there is no such branch.
    """
    head = ancestry.branch_head(metadata, branch)
    arrived: list[Snapshot] = []
    last: Snapshot | None = None
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id if head else None):
        if ancestry.operation_of(snapshot) == "replace":
            last = snapshot
            break
        arrived.append(snapshot)
    values: dict[str, int | None] = {
        name: sum(_added(snapshot, key) for snapshot in arrived) for name, key in _ADDED.items()
    }
    values[COMMITS] = len(arrived)
    if last is not None:
        values[AGE] = max(0, now_ms - last.timestamp_ms)
    elif not arrived:
        values[AGE] = 0
    elif ancestry.is_first(metadata, arrived[-1]):
        values[AGE] = max(0, now_ms - arrived[-1].timestamp_ms)
    else:
        values[AGE] = None
    return Evaluation(triggers, values)


def compact_when_due(
    table: Table,
    triggers: tuple[Trigger, ...],
    compact: Callable[[], Outcome],
    *,
    branch: str,
    now_ms: int,
) -> Outcome:
    """Compact if a condition holds, or if there is none; the outcome's plan contains the counts."""
    if not triggers:
        return compact()
    evaluation = evaluate_triggers(table.metadata, triggers, branch=branch, now_ms=now_ms)
    facts = {"triggers": evaluation.facts()}
    if evaluation.is_due:
        outcome = compact()
        return replace(outcome, plan={**facts, **outcome.plan})
    return Outcome(
        command="compact",
        table=table.identifier,
        branch=branch,
        status=Status.NOTHING_TO_DO,
        base_snapshot_id=ancestry.head_id(table.metadata, branch),
        plan=facts,
    )


def _limit(name: str, text: str) -> int:
    parse: Callable[[str], int | None] = {BYTES: parse_size, AGE: parse_duration_ms}.get(
        name, natural_number
    )
    limit = parse(text)
    if limit is None:
        raise InvalidRequestError(f"{Option.WHEN}: {text!r} is not a number of {name}", hint=_HINT)
    return limit


def _added(snapshot: Snapshot, key: str) -> int:
    """Return a count of a summary; 0 if it is missing or not a number, as other writers' may be."""
    properties = snapshot.summary.additional_properties if snapshot.summary else {}
    return natural_number(properties.get(key, "0")) or 0
