"""One run of the maintenance commands a table: the second of two that overlap has nothing to do.

For cron's sake alone: what keeps rows safe is that every commit is checked. On storage without exclusive creation,
or where the lock cannot be written, runs go on without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.clock import Clock
from lake.core.errors import LockedError
from lake.core.interrupts import uninterrupted
from lake.core.locks import local, s3
from lake.core.locks.local import HeldLock, Owner, this_process
from lake.core.locks.s3 import S3Lock
from lake.core.outcome import Outcome, Status
from lake.core.session import Session
from lake.core.snapshots import ancestry

LOCK_NAME = "lake.lock"
_LOOK_SECONDS = 0.5
_Work = Callable[[Table, str], Outcome]


def with_table_lock(
    session: Session,
    table: Table,
    work: _Work,
    *,
    command: str,
    branch: str | None = None,
    wait_ms: int | None = None,
) -> Outcome:
    """Do the work unless another run holds the table.

    Args:
        session: the invocation's.
        table: as it was loaded.
        work: gets the table as it then is and the run's operation id.
        command: the verb.
        branch: what the verb works on, where it has one.
        wait_ms: how long to wait for the other; None to leave at once, with status already-running.

    Raises:
        LockedError: the other run went on all that time.
    """
    operation_id = session.ids.uuid()
    with _turn(session, table, command, operation_id, wait_ms or 0) as owner:
        if owner is None:
            # Another run may have ended since the table was loaded.
            return work(table.refreshed(), operation_id)
    if wait_ms is not None:
        raise LockedError(
            f"another run held {table.identifier} for longer than --wait: {_words(owner)}",
            hint="wait longer, or run it at another time",
        )
    return Outcome(
        command=command,
        table=table.identifier,
        branch=branch,
        status=Status.ALREADY_RUNNING,
        base_snapshot_id=ancestry.head_id(table.metadata, branch)
        if branch
        else table.metadata.current_snapshot_id,
        details=[_row(owner)],
    )


@contextmanager
def _turn(
    session: Session, table: Table, command: str, operation_id: str, wait_ms: int
) -> Iterator[Owner | None]:
    """Hold a table's lock for a block, if there can be one; give who else does."""
    me = this_process(command, operation_id, session.clock)
    until = session.clock.monotonic() + wait_ms / 1000
    taken: HeldLock | S3Lock | Owner | None = None
    try:
        while True:
            # Stopped in between, nobody would know that the lock is there.
            with uninterrupted():
                taken = _take(table, me, session.clock)
            left = until - session.clock.monotonic()
            if not isinstance(taken, Owner) or left <= 0:
                break
            session.clock.sleep(min(left, _LOOK_SECONDS))
        yield taken if isinstance(taken, Owner) else None
    finally:
        if isinstance(taken, HeldLock | S3Lock):
            with uninterrupted():
                taken.release()


def _take(table: Table, me: Owner, clock: Clock) -> HeldLock | S3Lock | Owner | None:
    location = locations.join(table.metadata_folder, LOCK_NAME)
    parsed = locations.parse(location)
    if parsed.is_local:
        return local.take(parsed.path, me, clock)
    return s3.take(table.storage, location, me, clock)


def _words(owner: Owner) -> str:
    return " ".join(f"{name} {value}" for name, value in _facts(owner).items()) or "unknown"


def _row(owner: Owner) -> tuple[str, list[str], list[list[Any]]]:
    facts = _facts(owner)
    return ("running", list(facts), [list(facts.values())] if facts else [])


def _facts(owner: Owner) -> dict[str, Any]:
    if not owner.process:
        return {}
    since = datetime.fromtimestamp(owner.since_ms / 1000, UTC).isoformat(timespec="seconds")
    return {
        "command": owner.command,
        "host": owner.host,
        "pid": owner.pid,
        "operation_id": owner.operation_id,
        "since": since.replace("+00:00", "Z"),
    }
