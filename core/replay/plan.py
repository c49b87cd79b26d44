"""Plan a replay: what lies there, what it is, and what of it is to be committed; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lake.core.errors import NotFoundError
from lake.core.replay.checkpoint_selection import choose_given, read_given
from lake.core.replay.safety_checks import check
from lake.core.replay.survey import look

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.flink.state import Checkpoint
    from lake.core.replay.model import ReplayPlan
    from lake.core.replay.options import ReplayOptions
    from lake.core.replay.survey import Look
    from lake.core.session import Session

_LOOKS = 3


def plan_replay(session: Session, table: Table, options: ReplayOptions) -> ReplayPlan:
    """Find what lies there, judge it, and choose what is to be committed.

    Raises:
        NotFoundError: there is no such branch, or no such checkpoint.
        BadInputError: a checkpoint cannot be read or has no Iceberg sink; metadata of a retained snapshot is
            damaged.
        RefusedError: a safety rule forbids what was asked for.
    """
    seen = _look(table, options, read_given(table, options.checkpoints), _LOOKS)
    check(session, seen)
    return seen.to_plan()


def _look(
    table: Table, options: ReplayOptions, checkpoints: Sequence[Checkpoint], looks: int
) -> Look:
    """Look again, a few times, where what is missing may be explained by what others did meanwhile.

    Whoever commits a checkpoint removes its manifests afterwards, and an expiry those of old snapshots.
    """
    try:
        seen = look(table, options, choose_given(table, options.branch, checkpoints))
    except NotFoundError:
        now = table.refreshed()
        if looks == 1 or now.metadata_location == table.metadata_location:
            raise
    else:
        now = table.refreshed() if seen.lost and looks > 1 else table
        if now.metadata_location == table.metadata_location:
            return seen
    return _look(now, options, checkpoints, looks - 1)
