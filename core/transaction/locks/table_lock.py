"""At most one maintenance command runs per table; an overlapping second one ends without doing anything.

A command that cron repeats ends with 0 then, because the next run does its work. Any other command was typed for its
effect, so that it did nothing is an error.

The lock only avoids useless work of overlapping cron jobs; rows are safe because every commit is validated. On
storage without exclusive creation, or if the lock cannot be written, commands run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from lake.core.base import locations
from lake.core.base.clock import Clock
from lake.core.base.errors import LockedError
from lake.core.base.facts import AlreadyRunning, RunFacts
from lake.core.base.interrupts import uninterrupted
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.base.units import format_duration, format_time
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.locks import local, s3
from lake.core.transaction.locks.local import HeldLock, Owner, this_process
from lake.core.transaction.locks.s3 import S3Lock
from lake.core.transaction.session import Session

LOCK_NAME = "lake.lock"
_LONG_MS = 24 * 3_600_000
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
    repeated: bool = False,
) -> Outcome:
    """Run the work unless another run holds the table's lock.

    Args:
        session: the session.
        table: the table as it was loaded.
        work: receives the current table and the run's operation id.
        command: the verb.
        branch: the branch on which the verb works, if it has one.
        wait_ms: how long to wait for the other run; None not to wait.
        repeated: whether a schedule repeats the command: without a wait, it then returns the status already-running.

    Raises:
        LockedError: the other run held the lock for the whole time; nothing was done.
    """
    operation_id = session.ids.uuid()
    with _locked(session, table, command, operation_id, wait_ms or 0) as owner:
        if owner is None:
            # Another run may have ended since the table was loaded.
            return work(table.refreshed(), operation_id)
    if wait_ms is None and not repeated:
        raise LockedError(
            f"another run holds the lock on {table.identifier}, so nothing was done: {_words(owner)}",
            hint=f"run the command when that run has ended, or wait for it with {Option.WAIT}",
        )
    if wait_ms is not None:
        raise LockedError(
            f"another run held the lock on {table.identifier} for longer than {Option.WAIT}: {_words(owner)}",
            hint="wait longer, or run it at another time",
        )
    return Outcome(
        status=Status.ALREADY_RUNNING,
        base_snapshot_id=ancestry.head_id(table.metadata, branch)
        if branch
        else table.metadata.current_snapshot_id,
        result=AlreadyRunning(_facts(owner)),
        details=[_row(owner)],
        warnings=_held_too_long(table, owner, session.clock.now_ms()),
    )


def _held_too_long(table: Table, owner: Owner, now_ms: int) -> list[str]:
    """Return a warning about a run that works for longer than a day: each scheduled run would end silently."""
    if not owner.since_ms or now_ms - owner.since_ms <= _LONG_MS:
        return []
    duration = format_duration((now_ms - owner.since_ms) / 1000)
    held = f"another run has held the lock on {table.identifier} for {duration}"
    return [f"{held}, and this run did nothing: {_words(owner)}; stop that run if it hangs"]


@contextmanager
def _locked(
    session: Session, table: Table, command: str, operation_id: str, wait_ms: int
) -> Iterator[Owner | None]:
    """Hold a table's lock during a block, if possible; yield the owner if another run holds it."""
    me = this_process(command, operation_id, session.clock)
    until = session.clock.monotonic() + wait_ms / 1000
    acquired: HeldLock | S3Lock | Owner | None = None
    waiting: Meter | None = None
    try:
        with ExitStack() as phase:
            while True:
                # A stop in between would leave a lock that no code releases.
                with uninterrupted():
                    acquired = _acquire(table, me, session.clock)
                remaining = until - session.clock.monotonic()
                if not isinstance(acquired, Owner) or remaining <= 0:
                    break
                if waiting is None:
                    waiting = Meter("waiting for another run on this table")
                    phase.enter_context(shown(session.progress, waiting))
                session.clock.sleep(min(remaining, _LOOK_SECONDS))
        yield acquired if isinstance(acquired, Owner) else None
    finally:
        if isinstance(acquired, HeldLock | S3Lock):
            with uninterrupted():
                acquired.release()


def _acquire(table: Table, me: Owner, clock: Clock) -> HeldLock | S3Lock | Owner | None:
    location = locations.join(table.metadata_folder, LOCK_NAME)
    parsed = locations.parse(location)
    if parsed.is_local:
        return local.take(parsed.path, me, clock)
    return s3.take(table.storage, location, me, clock)


def _words(owner: Owner) -> str:
    facts = _facts(owner).document()
    return " ".join(f"{name} {value}" for name, value in facts.items()) or "unknown"


def _row(owner: Owner) -> Detail:
    facts = _facts(owner).document()
    return Detail("running", list(facts), [list(facts.values())] if facts else [])


def _facts(owner: Owner) -> RunFacts:
    if not owner.process:
        return RunFacts()
    return RunFacts(
        command=owner.command,
        host=owner.host,
        pid=owner.pid,
        operation_id=owner.operation_id,
        since=format_time(owner.since_ms),
    )
