"""`lake consumers`: list the readers whose progress a table protects, or remove one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import DryRun, TableArgument
from lake.commands.reports.facts import ConsumerDropFacts, ConsumerFacts, ConsumersResult
from lake.core.base.errors import InvalidRequestError
from lake.core.base.facts import NoFacts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.units import format_duration
from lake.core.read.continuous.position import Lag, Position
from lake.core.table.refs.consumers import Consumer, find_consumers, ref_of

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_COLUMNS = ("consumer", "branch", "position", "unread", "rows", "lag", "age")


def consumers(
    context: typer.Context,
    table: TableArgument,
    dropped_consumer: Annotated[
        str | None, Flag("Remove this consumer's protection.", "NAME", name="--drop")
    ] = None,
    dry_run: DryRun = False,
) -> Outcome:
    """List or remove the readers that a table protects."""
    session = session_of(context)
    if dry_run and dropped_consumer is None:
        raise InvalidRequestError("--dry-run needs --drop")
    loaded = session.table(table)
    if dropped_consumer is not None:
        return _drop(session, loaded, dropped_consumer, dry_run=dry_run)
    found = list(find_consumers(loaded.metadata))
    for item in found:
        if item.branch is None:
            session.warn(
                f"snapshot {item.head.snapshot_id}, the head of {ref_of(item.name)}, is not in the history of a "
                "branch: another program committed to the ref, or the branch was rolled back; it is left as it is"
            )
        if item.expired:
            session.warn(
                f"{item.expired} or more snapshots that consumer {item.name} needs have expired: its reader will "
                "report a gap"
            )
    now_ms = session.clock.now_ms()
    rows = [_described(loaded, item, now_ms) for item in found]
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=loaded.metadata.current_snapshot_id,
        result=ConsumersResult(consumers=rows),
        details=[Detail("consumers", _COLUMNS, [_shown(row) for row in rows])],
    )


def _drop(session: Session, table: Table, name: str, *, dry_run: bool) -> Outcome:
    from lake.core.read.continuous.consumers import drop as drop_consumer

    dropped = drop_consumer(session, table, name, dry_run=dry_run)
    described = _described(table, dropped, session.clock.now_ms())
    return Outcome(
        status=Status.DRY_RUN if dry_run else Status.DONE,
        base_snapshot_id=table.metadata.current_snapshot_id,
        plan=ConsumerDropFacts(dropped=name, consumers=[described]),
        result=NoFacts() if dry_run else ConsumerDropFacts(dropped=name),
    )


def _described(table: Table, item: Consumer, now_ms: int) -> ConsumerFacts:
    position = item.position
    read = None if position is None else table.metadata.snapshot_by_id(position)
    unread = item.unread
    lag_ms = max(now_ms - unread[-1].timestamp_ms, 0) if unread else 0
    known = item.branch is not None
    return ConsumerFacts(
        name=item.name,
        branch=item.branch,
        position=Position(position, read.timestamp_ms if read else None),
        head=str(item.head.snapshot_id),
        lag=Lag(len(unread), item.unread_rows, lag_ms) if known else Lag(None, None, None),
        expired_snapshots=item.expired,
        age_ms=max(now_ms - item.head.timestamp_ms, 0),
        max_age_ms=item.max_age_ms,
    )


def _shown(row: ConsumerFacts) -> list[str | int | None]:
    position, lag = row.position.snapshot_id, row.lag
    return [
        row.name,
        row.branch,
        None if position is None else str(position),
        lag.snapshots,
        lag.rows,
        None if lag.ms is None else format_duration(lag.ms / 1000),
        format_duration(row.age_ms / 1000),
    ]
