"""Delete files that no snapshot references, checking before each batch that this is still so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.clock import Clock
from lake.core.base.progress import Meter, shown
from lake.core.io.objects.requests import ShouldContinue
from lake.core.io.storage.storage import DeleteOutcome
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.garbage.other_tables import OtherTables
from lake.core.transaction.garbage.own_files import own_files, warn_of_others
from lake.core.transaction.garbage.reachability import KINDS, Reachability
from lake.core.transaction.session import Session

# Returns those of the files (path, kind, bytes) that the table in its current state still does not reference.
Recheck = Callable[[Table, pa.Table], pa.Table]
# Removes files of one kind from the table; may stop when the second argument returns False.
Remove = Callable[[pa.Table, ShouldContinue], DeleteOutcome]

# A process that was suspended for days must not use an old list: reload the table after this many files.
_BATCH = 1000
# A longer pause between two deletes means suspension: these seconds plus this many times a reload's duration.
_PAUSE_SECONDS, _PAUSE_RELOADS = 0.5, 3.0


@dataclass(frozen=True, slots=True)
class Removal:
    """How files are removed from a table.

    Args:
        remove: removes a batch of them.
        most: the number of files of a batch.
        title: what the progress shows.
    """

    remove: Remove
    most: int = _BATCH
    title: str = "deleting files"

    @classmethod
    def deletion(cls, table: Table) -> Removal:
        """Return how a table's files are deleted.

        S3 deletes several times as many files by bulk requests, which are sent at the same time, in the time of one
        of them. If it turns out not to support them, each file takes a request, and a batch ends earlier.
        """

        def remove(batch: pa.Table, should_continue: ShouldContinue) -> DeleteOutcome:
            paths = batch["path"].to_pylist()
            return table.storage.delete(paths, should_continue=should_continue, most_single=_BATCH)

        reached = table.storage.s3(table.metadata.location)
        return cls(remove, reached[0].most_deleted if reached else _BATCH)


@dataclass(slots=True)
class Removed:
    """The deleted files by kind, their bytes, and the files that could not be deleted.

    Args:
        counts: number of files by kind.
        bytes: their total size.
        failed: locations of files that could not be deleted.
        reached: the number of files that were kept because the table references them again.
        tried: locations handled so far, so that a file in several lists is counted once.
    """

    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    failed: list[str] = field(default_factory=list)
    reached: int = 0
    tried: list[pa.ChunkedArray] = field(default_factory=list)

    @property
    def files(self) -> int:
        """The number of deleted files."""
        return sum(self.counts.values())


def delete_files(
    session: Session,
    table: Table,
    reach: Reachability,
    files: pa.Table,
    removed: Removed,
    others: OtherTables,
) -> pa.Table:
    """Delete the table's own files that no snapshot of it references, data files before their manifests.

    Returns:
        The table's own files among the given ones.

    Raises:
        LakeError: the table or its manifests can no longer be read: nothing more is deleted.
    """

    def recheck(now: Table, files: pa.Table) -> pa.Table:
        return reach.unreached(now.metadata, files)

    if removed.tried:
        tried = pa.chunked_array(
            [chunk for column in removed.tried for chunk in column.chunks], pa.string()
        )
        files = files.filter(pc.invert(pc.is_in(files["path"], value_set=tried)))
    own = own_files(table, files, others)
    warn_of_others(session, files.num_rows - own.num_rows)
    removed.tried.append(own["path"])
    failures = len(removed.failed)
    removal = Removal.deletion(table)
    remove_in_batches(session, table, _in_order(own), removed, recheck=recheck, removal=removal)
    if failed := removed.failed[failures:]:
        session.warn(f"{len(failed)} files could not be deleted, e.g. {failed[0]}")
    return own


def remove_in_batches(
    session: Session,
    table: Table,
    files: pa.Table,
    removed: Removed,
    *,
    recheck: Recheck,
    removal: Removal,
) -> None:
    """Remove files in batches of one kind; before each, check them again if the table has changed.

    Args:
        session: the clock, the signals and the progress.
        table: the table.
        files: path, kind and bytes of files that belong to the table, sorted by kind.
        removed: counts the files.
        recheck: returns the files that are still not referenced.
        removal: removes a batch.

    Raises:
        LakeError: the table can no longer be read: nothing more is removed.
        OutOfTimeError: the time of the run has ended; the rest is not removed.
    """
    total_bytes = int(pc.sum(files["bytes"]).as_py() or 0)
    meter = Meter(removal.title, tasks=files.num_rows, total_bytes=total_bytes)
    remaining, checked, detector = files, "", _SuspendDetector(session.clock)
    with shown(session.progress, meter):
        while remaining.num_rows:
            session.interrupts.checkpoint()
            left = f"{remaining.num_rows:,} of {files.num_rows:,} files were not removed"
            session.require_time(left)
            now = detector.reload(table)
            if now.metadata_location != checked:  # check: reload-during-deletion
                before = remaining.num_rows
                # check: recheck-at-reload
                remaining, checked = recheck(now, remaining), now.metadata_location
                removed.reached += before - remaining.num_rows
                continue
            count = _of_first_kind(remaining, removal.most)
            outcome = removal.remove(remaining.slice(0, count), detector.may_continue)
            untried = _counted(meter, remaining.slice(0, count), outcome, removed)
            remaining = pa.concat_tables([untried, remaining.slice(count)])


def _in_order(files: pa.Table) -> pa.Table:
    return pa.concat_tables([files.filter(pc.equal(files["kind"], kind)) for kind in KINDS])


def _of_first_kind(files: pa.Table, most: int) -> int:
    kinds = files["kind"].slice(0, most)
    return int(pc.sum(pc.equal(kinds, kinds[0])).as_py())


def _counted(meter: Meter, batch: pa.Table, outcome: DeleteOutcome, removed: Removed) -> pa.Table:
    """Count the removed files of one kind; return those not tried because the process was suspended."""
    kind = batch["kind"][0].as_py()
    deleted = batch.filter(
        pc.is_in(batch["path"], value_set=pa.array(outcome.deleted, pa.string()))
    )
    deleted_bytes = int(pc.sum(deleted["bytes"]).as_py() or 0)
    removed.counts[kind] = removed.counts.get(kind, 0) + len(outcome.deleted)
    removed.bytes += deleted_bytes
    removed.failed += outcome.failed
    meter.advance(tasks=batch.num_rows - len(outcome.untried), done_bytes=deleted_bytes)
    return batch.filter(pc.is_in(batch["path"], value_set=pa.array(outcome.untried, pa.string())))


class _SuspendDetector:
    """Detects that the process was suspended, so that the table must be reloaded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reload_seconds = math.inf
        self._last = 0.0
        self._slept = False

    def reload(self, table: Table) -> Table:
        """Return the table's current state. Pauses are measured from the start of this call."""
        began = self._clock.monotonic()
        now = table.refreshed()
        # A catalog that becomes slow is not a suspended process: adopt its longer duration step by step.
        self._reload_seconds = min(
            max(2 * self._reload_seconds, 0.1), self._clock.monotonic() - began
        )
        self._last, self._slept = began, False
        return now

    def may_continue(self) -> bool:
        """Whether the process was not suspended since the last reload. Thread-safe."""
        now = self._clock.monotonic()
        if now - self._last > _PAUSE_SECONDS + _PAUSE_RELOADS * self._reload_seconds:
            self._slept = True  # check: slept-during-deletion
        self._last = now
        return not self._slept
