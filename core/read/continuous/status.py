"""Report where a follow is."""

from __future__ import annotations

from lake.core.base.errors import NotFoundError
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous.facts import StatusResult
from lake.core.read.continuous.handover.state import StateStore
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.report import gap_warnings, lag_of, standing
from lake.core.read.continuous.run import followed_table, refuse_other_table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.session import Session


def status(session: Session, identifier: str, options: FollowOptions) -> Outcome:
    """Report where a follow is, from its state and the table's metadata; the lock is not needed.

    A gap, at which the next run would end, makes the outcome suspect.

    Raises:
        NotFoundError: the folder has no state, or the table does not exist.
        CorruptFileError: the state is damaged.
        RefusedError: it is another table's state.
    """
    path = options.state or ""
    store = StateStore(StateFolder.at(path, clock=session.clock, ids=session.ids))
    state = store.load()
    if state is None:
        raise NotFoundError(f"there is no state of a follow in {path}")
    table = followed_table(session, identifier, lambda: state)
    refuse_other_table(state, table)
    position = state.position.position if state.position else None
    totals, lag = state.totals, lag_of(table.metadata, state.branch, position)
    gap = None if lag is None else lag.gap
    return Outcome(
        branch=state.branch,
        status=Status.DONE if gap is None else Status.SUSPECT,
        base_snapshot_id=ancestry.head_id(table.metadata, state.branch),
        result=StatusResult(
            epochs=state.epoch,
            rows=totals.rows,
            bytes_written=totals.bytes,
            standing=standing(state, lag),
            gap=gap,
            gaps_total=totals.gaps,
            skipped_snapshots=totals.skipped_snapshots,
            planning_failures=state.planning_failures,
            generation=state.generation,
            updated_ms=state.updated_ms,
        ),
        warnings=gap_warnings(lag, table.identifier, state.branch),
    )
