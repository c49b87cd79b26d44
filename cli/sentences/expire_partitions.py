"""What `lake expire-partitions` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import NOTHING_WRITTEN
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted, format_size, readable_time
from lake.core.maintain.partitions.facts import PartitionExpirationFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    dry = outcome.status is Status.DRY_RUN
    plan = PartitionExpirationFacts.of(outcome.plan)
    limit = readable_time(plan.older_than or "")
    if not plan.data_files:
        return f"{'dry run: ' * dry}no partition is older than {limit}"
    rows = ("at most " if plan.rows is None else "") + counted(plan.rows_at_most, "row")
    files = f"{counted(plan.data_files, 'file')} ({format_size(plan.bytes)}, {rows})"
    what = f"{counted(plan.partitions, 'partition')} older than {limit}: {files}"
    return f"dry run: would remove {what}{NOTHING_WRITTEN}" if dry else f"removed {what}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    return () if PartitionExpirationFacts.of(outcome.plan).data_files else None
