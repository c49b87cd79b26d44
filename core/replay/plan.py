"""Plan a replay: find the checkpoints, classify them, and select those to commit. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lake.core.commit.preconditions import refuse_consumer
from lake.core.errors import NotFoundError
from lake.core.replay.checkpoint_selection import read_selected, select_checkpoints
from lake.core.replay.safety_checks import check
from lake.core.replay.staged import choose_all
from lake.core.replay.survey import survey

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.flink.state import Checkpoint
    from lake.core.replay.model import ReplayPlan
    from lake.core.replay.options import ReplayOptions
    from lake.core.replay.survey import Survey
    from lake.core.session import Session

_ATTEMPTS = 3


def plan_replay(session: Session, table: Table, options: ReplayOptions) -> ReplayPlan:
    """Find checkpoints, classify them, and select those to commit.

    Raises:
        NotFoundError: the branch or a given checkpoint does not exist.
        BadInputError: a checkpoint cannot be read or has no Iceberg sink; metadata of a retained snapshot is
            damaged.
        RefusedError: a safety rule forbids the request.
    """
    if options.commits:
        refuse_consumer(options.branch)
    seen = _survey(table, options, read_selected(table, options.checkpoints), _ATTEMPTS)
    check(session, seen)
    plan = seen.to_plan()
    return choose_all(session, plan) if options.all_staged else plan


def _survey(
    table: Table, options: ReplayOptions, checkpoints: Sequence[Checkpoint], attempts: int
) -> Survey:
    """Survey the table; repeat this if missing files may be explained by a concurrent change of the table.

    A commit of a checkpoint removes its manifests afterwards, and an expiry those of old snapshots.
    """
    try:
        seen = survey(table, options, select_checkpoints(table, options.branch, checkpoints))
    except NotFoundError:
        now = table.refreshed()
        if attempts == 1 or now.metadata_location == table.metadata_location:
            raise
    else:
        now = table.refreshed() if seen.has_missing_manifests and attempts > 1 else table
        if now.metadata_location == table.metadata_location:
            return seen
    return _survey(now, options, checkpoints, attempts - 1)
