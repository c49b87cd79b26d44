"""Why an expiration keeps snapshots: the reason, what keeps them, and the rule that it follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lake.core.base.outcome import Explanation
from lake.core.base.units import iso_time
from lake.core.maintain.expiration.facts import KeptFacts
from lake.core.maintain.expiration.retention import Keeper

if TYPE_CHECKING:
    from lake.core.maintain.expiration.plan import ExpirationPlan

_NOTHING = Keeper("", "")


def left_alone(plan: ExpirationPlan) -> list[KeptFacts]:
    """Return how many snapshots are kept, by the reason and by what keeps them; the most frequent come first."""
    retention = plan.retention
    counts = Counter(
        (str(reason), retention.keepers.get(snapshot_id, _NOTHING))
        for snapshot_id, reason in retention.kept.items()
    )
    return [
        KeptFacts(
            reason=reason,
            by=keeper.name or None,
            rule=keeper.rule or None,
            snapshots=count,
        )
        for (reason, keeper), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def explained(plan: ExpirationPlan) -> Explanation:
    """Return why snapshots are kept, for people."""
    return Explanation(
        noun="snapshots",
        columns=("reason", "by", "rule", "snapshots"),
        groups=[(kept.reason, kept.by, kept.rule, kept.snapshots) for kept in left_alone(plan)],
        item_columns=("reason", "snapshot_id", "committed_at", "by", "rule"),
        items=lambda: _snapshots(plan),
    )


def _snapshots(plan: ExpirationPlan) -> Iterator[tuple[Any, ...]]:
    """Yield the kept snapshots in the order of the metadata."""
    retention = plan.retention
    for snapshot in plan.table.metadata.snapshots:
        reason = retention.kept.get(snapshot.snapshot_id)
        if reason is not None:
            name, rule = retention.keepers.get(snapshot.snapshot_id, _NOTHING)
            time = iso_time(snapshot.timestamp_ms)
            yield str(reason), str(snapshot.snapshot_id), time, name or None, rule or None
