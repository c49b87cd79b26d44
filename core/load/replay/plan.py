"""Plan a replay: find the checkpoints, classify them, and select those to commit. Nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.errors import NotFoundError, RefusedError
from lake.core.load.replay.checkpoint_selection import read_selected, select_checkpoints
from lake.core.load.replay.safety_checks import check
from lake.core.load.replay.staged import choose_all
from lake.core.load.replay.survey import survey
from lake.core.transaction.commit.preconditions import refuse_consumer

if TYPE_CHECKING:
    from lake.core.load.replay.model import ReplayPlan
    from lake.core.load.replay.options import ReplayOptions
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_ATTEMPTS = 3


def plan_replay(session: Session, table: Table, options: ReplayOptions) -> ReplayPlan:
    """Find checkpoints, classify them, and select those to commit.

    Raises:
        NotFoundError: the branch, the job or a given checkpoint does not exist.
        BadInputError: a checkpoint cannot be read or has no Iceberg sink; metadata of a retained snapshot is
            damaged.
        RefusedError: a safety rule forbids the request.
    """
    if options.commits:
        refuse_consumer(options.branch)
    checkpoints = read_selected(table, options.checkpoint)
    for attempts in reversed(range(_ATTEMPTS)):
        try:
            seen = survey(table, options, select_checkpoints(table, options.branch, checkpoints))
            check(session, seen)
        except (NotFoundError, RefusedError):
            # A change of the table meanwhile may explain it: a commit of a checkpoint removes its manifests, and
            # an expiry those of old snapshots.
            now = table.refreshed()
            if not attempts or now.metadata_location == table.metadata_location:
                raise
            table = now
        else:
            break
    plan = seen.to_plan()
    return choose_all(session, plan) if options.all_staged else plan
