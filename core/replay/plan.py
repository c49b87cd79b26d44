"""Plan a replay: what lies there, what it is, and what of it is to be committed; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.replay.checks import check
from lake.core.replay.given import choose_given, read_given
from lake.core.replay.look import look

if TYPE_CHECKING:
    from lake.core.replay.model import ReplayPlan
    from lake.core.replay.options import ReplayOptions
    from lake.core.session import Session
    from lake.core.table.catalog import Table

_LOOKS = 3


def plan_replay(session: Session, table: Table, options: ReplayOptions) -> ReplayPlan:
    """Find what lies there, judge it, and choose what is to be committed.

    Raises:
        NotFoundError: there is no such branch, or no such checkpoint.
        BadInputError: a checkpoint cannot be read or has no Iceberg sink; metadata of a retained snapshot is
            damaged.
        RefusedError: a safety rule forbids what was asked for.
    """
    checkpoints = read_given(table, options.checkpoints)
    seen = look(table, options, choose_given(table, options.branch, checkpoints))
    for _ in range(1, _LOOKS):
        if not seen.lost:
            break
        # Whoever commits a checkpoint removes its manifests afterwards: look at the table as it is then.
        table = seen.table.refreshed()
        if table.metadata_location == seen.table.metadata_location:
            break
        seen = look(table, options, choose_given(table, options.branch, checkpoints))
    check(session, seen)
    return seen.to_plan()
