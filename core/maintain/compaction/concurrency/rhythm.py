"""How often writers change rows of a branch, learned from its snapshots, and which partitions they still change.

A rewrite conflicts with commits that remove its files or delete their rows by position. It does not conflict with
appends, nor with equality deletes as long as the new files keep the sequence number of the plan. The position deletes
of Flink's sinks name only files of the same commit.

The times are those of the writers' clocks: they may go back, and one that is ahead of this clock is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake.core.base.arrow import Int64s
from lake.core.base.units import iso_time, natural_number
from lake.core.maintain.compaction.facts import RhythmFacts
from lake.core.table.flink.commits import ENGINE_NAME, job_commit, writer_with_job
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.partition_activity import commit_times

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.snapshots.live_files import LiveFiles

# A rhythm is the last commits of this time, as long as there are this many of them and they took this long: what is
# loaded by hand before a compaction is not one.
_WINDOW_MS = 24 * 3_600_000
_LEAST_COMMITS, _MOST_COMMITS = 10, 50
_LEAST_SPAN_MS = 10 * 60_000
# The measured interval is one that this share of the pauses between commits does not exceed. A partition without a
# commit for several of them is idle.
_SHARE, _INTERVALS = 0.9, 3
# A writer that commits less often leaves pauses in which a group of files is rewritten and committed.
_LONGEST_INTERVAL_MS = 10 * 60_000
# A partition that was changed for this long without being idle is not left alone any longer: it would never be.
_LONGEST_MS = 6 * 3_600_000
# Iceberg's own tolerance for the clocks of writers.
_AHEAD_MS = 60_000
_POSITIONS = ("added-position-delete-files", "added-position-deletes", "added-dvs")
_EQUALITY = ("added-equality-delete-files", "added-equality-deletes")
_SHOWN_WRITERS = 3


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The rhythm of the writers that change rows of a branch now.

    Args:
        times: the time of each commit that may conflict with a rewrite, by snapshot id; in ms since 1970.
        commits: the number of commits that were measured.
        interval_ms: the measured interval.
        limit_ms: a partition that was changed for this long without being idle is not left alone.
        now_ms: the time at which it was learned.
        writers: the names of the writers, those of the newest commits first.
    """

    times: Mapping[int, int]
    commits: int
    interval_ms: int
    limit_ms: int
    now_ms: int
    writers: tuple[str, ...]

    @property
    def idle_ms(self) -> int:
        """A partition that did not change for this long is idle."""
        return _INTERVALS * self.interval_ms

    def facts(self) -> RhythmFacts:
        """Return the rhythm for the outcome."""
        return RhythmFacts(
            writers=self.writers,
            commits=self.commits,
            interval_ms=self.interval_ms,
            idle_ms=self.idle_ms,
            last_commit=iso_time(max(self.times.values())),
        )

    def busy(self, found: LiveFiles) -> dict[int, npt.NDArray[np.bool_]]:
        """Return which live data files are in partitions that are not idle, by spec id."""
        return {
            spec_id: self._busy(commits.pairs, commits.times, commits.partitions)[commits.codes]
            for spec_id, commits in commit_times(found, self.times).items()
        }

    def _busy(self, codes: Int64s, times: Int64s, partitions: int) -> npt.NDArray[np.bool_]:
        """Return which partitions are busy.

        Args:
            codes: the partition of each commit, sorted.
            times: the time of each commit, sorted within the partition.
            partitions: the number of partitions.
        """
        busy = np.zeros(partitions, np.bool_)
        if not len(codes):
            return busy
        ends = np.append(np.flatnonzero(np.diff(codes)) + 1, len(codes))
        starts = np.concatenate([[0], ends[:-1]])
        recent = self.now_ms - times[ends - 1] <= _INTERVALS * _LONGEST_INTERVAL_MS
        for start, end in zip(starts[recent].tolist(), ends[recent].tolist(), strict=True):
            own = times[start:end]
            # A partition that only some of the commits change has a slower rhythm than the table.
            slower = _interval(own) if len(own) >= _LEAST_COMMITS else 0
            idle_ms = _INTERVALS * min(max(self.interval_ms, slower), _LONGEST_INTERVAL_MS)
            since = _without_pause(own, idle_ms)
            is_live = self.now_ms - own[-1] <= idle_ms
            busy[codes[start]] = is_live and self.now_ms - since < self.limit_ms
        return busy


def learned(
    metadata: TableMetadata, branch: str, now_ms: int, *, keeps_sequence: bool
) -> Rhythm | None:
    """Learn the rhythm of the writers that change rows of a branch.

    Args:
        metadata: the table's metadata.
        branch: the branch.
        now_ms: the time, in ms since 1970.
        keeps_sequence: whether rewritten files keep the sequence number of the plan.

    Returns:
        None if they have no rhythm, have ended, or commit so rarely that a rewrite fits in between.
    """
    times: dict[int, int] = {}
    writers: dict[str, None] = {}
    rewritten_ms, oldest = 0, None
    for snapshot in ancestry.ancestors(metadata, ancestry.head_id(metadata, branch)):
        oldest, moment = snapshot, snapshot.timestamp_ms
        if not now_ms - _WINDOW_MS <= moment <= now_ms + _AHEAD_MS:
            continue
        if ancestry.operation_of(snapshot) == "replace":
            rewritten_ms = max(rewritten_ms, moment)
        elif conflicts_with_rewrites(snapshot, keeps_sequence=keeps_sequence):
            times[snapshot.snapshot_id] = min(moment, now_ms)
            writers.setdefault(writer_with_job(snapshot))
    every = np.sort(np.array(list(times.values()), np.int64))
    last = every[-_MOST_COMMITS:]
    if oldest is None or len(last) < _LEAST_COMMITS or last[-1] - last[0] < _LEAST_SPAN_MS:
        return None
    interval_ms = _interval(last)
    idle_ms = _INTERVALS * interval_ms
    if interval_ms > _LONGEST_INTERVAL_MS or now_ms - last[-1] > idle_ms:
        return None
    limit_ms = _LONGEST_MS
    if not ancestry.is_first(metadata, oldest):
        # What is older has expired: a partition cannot be seen to be busy for longer.
        limit_ms = max(min(limit_ms, now_ms - oldest.timestamp_ms - idle_ms), 0)
    # The files of some partitions show only their last changes, because each change replaces the files.
    if now_ms - max(_without_pause(every, idle_ms), rewritten_ms) >= limit_ms:
        return None
    return Rhythm(times, len(last), interval_ms, limit_ms, now_ms, tuple(writers)[:_SHOWN_WRITERS])


def conflicts_with_rewrites(snapshot: Snapshot, *, keeps_sequence: bool) -> bool:
    """Whether a commit like this one conflicts with a rewrite of the files that it changes.

    Args:
        snapshot: the commit. If its summary counts nothing, its operation decides.
        keeps_sequence: whether rewritten files keep the sequence number of the plan.
    """
    if ancestry.operation_of(snapshot) in {"append", "replace"}:
        return False
    counts = properties_of(snapshot)
    if _counted(counts, "deleted-data-files"):
        return True
    if _counted(counts, *_POSITIONS) and not _is_of_flink_sink(snapshot):
        return True
    if _counted(counts, *_EQUALITY):
        return not keeps_sequence
    return not any(name.startswith(("added-", "deleted-", "removed-")) for name in counts)


def _is_of_flink_sink(snapshot: Snapshot) -> bool:
    counts = properties_of(snapshot)
    return job_commit(snapshot) is not None and counts.get(ENGINE_NAME, "flink").lower() == "flink"


def _counted(counts: Mapping[str, str], *names: str) -> bool:
    return any(natural_number(counts.get(name, "0")) for name in names)


def _interval(times: Int64s) -> int:
    """Return the interval that most pauses between sorted times do not exceed."""
    return int(np.quantile(np.diff(times), _SHARE, method="higher"))


def _without_pause(times: Int64s, idle_ms: int) -> int:
    """Return the first of the last sorted times that have no pause longer than this between them."""
    pauses = np.flatnonzero(np.diff(times) > idle_ms)
    return int(times[pauses[-1] + 1] if len(pauses) else times[0])
