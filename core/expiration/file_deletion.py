"""Delete what nothing reaches, asking again and again whether that is still so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.catalogs.catalog import Table
from lake.core.clock import Clock
from lake.core.expiration.own_files import own_files, warn_of_others
from lake.core.expiration.reachability import KINDS, Reachability
from lake.core.session import Session

# A process that was stopped for days must not go on with an old list: so many files, then it looks again.
_BATCH = 1000
# So long, and so many times what a look takes, may pass between two deletes of a process that was not stopped.
_PAUSE_SECONDS, _PAUSE_LOOKS = 0.5, 3.0


@dataclass(slots=True)
class Removed:
    """What was deleted: how many files of each kind, their bytes, and what could not be deleted.

    Args:
        counts: by kind.
        bytes: of all of them.
        failed: locations.
        reached: how many files stayed because the table reaches them again.
        tried: locations that were dealt with, so that several lists that name a file count it once.
    """

    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    failed: list[str] = field(default_factory=list)
    reached: int = 0
    tried: list[pa.ChunkedArray] = field(default_factory=list)

    @property
    def files(self) -> int:
        """How many files are gone."""
        return sum(self.counts.values())


def delete_files(
    session: Session, table: Table, reach: Reachability, files: pa.Table, removed: Removed
) -> None:
    """Delete files of the table that nothing in it reaches; data goes before the manifests that name it.

    Raises:
        LakeError: the table, or what it reaches, can no longer be read: nothing more is deleted.
    """
    if removed.tried:
        tried = pa.chunked_array(
            [chunk for one in removed.tried for chunk in one.chunks], pa.string()
        )
        files = files.filter(pc.invert(pc.is_in(files["path"], value_set=tried)))
    session.progress.start(
        "deleting", tasks=files.num_rows, total_bytes=int(pc.sum(files["bytes"]).as_py() or 0)
    )
    own = own_files(table, files)
    warn_of_others(session, files.num_rows - own.num_rows)
    left = _in_order(own)
    removed.tried.append(left["path"])
    failures, checked, vigil = len(removed.failed), "", _SuspendDetector(session.clock)
    while left.num_rows:
        session.interrupts.checkpoint()
        now = vigil.look(table)
        if now.metadata_location != checked:
            before = left.num_rows
            left, checked = reach.unreached(now.metadata, left), now.metadata_location
            removed.reached += before - left.num_rows
            continue
        count = min(_BATCH, _of_first_kind(left))
        untried = _delete_batch(session, now, left.slice(0, count), removed, vigil)
        left = pa.concat_tables([untried, left.slice(count)])
    session.progress.finish()
    if failed := removed.failed[failures:]:
        session.warn(f"{len(failed)} files could not be deleted, e.g. {failed[0]}")


def _in_order(files: pa.Table) -> pa.Table:
    return pa.concat_tables([files.filter(pc.equal(files["kind"], kind)) for kind in KINDS])


def _of_first_kind(files: pa.Table) -> int:
    kinds = files["kind"].slice(0, _BATCH)
    return int(pc.sum(pc.equal(kinds, kinds[0])).as_py())


def _delete_batch(
    session: Session, table: Table, batch: pa.Table, removed: Removed, vigil: _SuspendDetector
) -> pa.Table:
    """Delete files of one kind; return those that were not tried because the process was stopped."""
    kind = batch["kind"][0].as_py()
    outcome = table.storage.delete(batch["path"].to_pylist(), should_continue=vigil.may_continue)
    deleted = batch.filter(
        pc.is_in(batch["path"], value_set=pa.array(outcome.deleted, pa.string()))
    )
    gone = int(pc.sum(deleted["bytes"]).as_py() or 0)
    removed.counts[kind] = removed.counts.get(kind, 0) + len(outcome.deleted)
    removed.bytes += gone
    removed.failed += outcome.failed
    session.progress.advance(tasks=batch.num_rows - len(outcome.untried), done_bytes=gone)
    return batch.filter(pc.is_in(batch["path"], value_set=pa.array(outcome.untried, pa.string())))


class _SuspendDetector:
    """Notices that the process was stopped for a while: what it saw before need not be so any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._usual = math.inf
        self._last = 0.0
        self._slept = False

    def look(self, table: Table) -> Table:
        """Return a table as it is now; pauses count from when it is asked for."""
        began = self._clock.monotonic()
        now = table.refreshed()
        # A catalog that became slow is no process that was stopped: it is believed little by little.
        self._usual = min(max(2 * self._usual, 0.1), self._clock.monotonic() - began)
        self._last, self._slept = began, False
        return now

    def may_continue(self) -> bool:
        """Whether it was never stopped since the last look; threads may ask at once."""
        now = self._clock.monotonic()
        if now - self._last > _PAUSE_SECONDS + _PAUSE_LOOKS * self._usual:
            self._slept = True
        self._last = now
        return not self._slept
