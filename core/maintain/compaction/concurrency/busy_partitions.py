"""The partitions that a compaction leaves alone because they changed too recently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Mask
from lake.core.maintain.compaction.concurrency.rhythm import Rhythm, learned
from lake.core.maintain.compaction.facts import CompactionFacts
from lake.core.table.snapshots.partition_activity import activity_of
from lake.core.table.snapshots.partition_names import partition_names

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.maintain.compaction.options import CompactionOptions
    from lake.core.table.snapshots.live_files import LiveFiles

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyPartitions:
    """The busy partitions of a branch, of which there may be none.

    Args:
        marked: which live data files are in them, by spec id.
        names: their names.
        rhythm: the rhythm of the writers that change them; None if a time decides.
    """

    marked: Mapping[int, Mask]
    names: Sequence[str]
    rhythm: Rhythm | None

    @property
    def mask(self) -> Mask:
        """Which live data files are in them, in the order of the specs."""
        return np.concatenate([np.zeros(0, np.bool_), *self.marked.values()])

    @property
    def text(self) -> str:
        """Why they are left alone, with the first names, for people; empty if there are none."""
        rhythm = self.rhythm.facts() if self.rhythm else None
        why = CompactionFacts(busy_partitions=len(self.names), rhythm=rhythm).busy_text
        shown = ", ".join(filter(None, self.names[:_SHOWN]))
        more = f" and {len(self.names) - _SHOWN:,} more" if len(self.names) > _SHOWN else ""
        return f"{why}: {shown}{more}" if shown else why


def rhythm_of(metadata: TableMetadata, options: CompactionOptions, branch: str) -> Rhythm | None:
    """Return the rhythm of the writers that decides which partitions of a branch are busy; None if it does not."""
    # What is asked for expressly is done.
    if options.idle_learned_at_ms is None or options.rewrite_all:
        return None
    keeps = options.keeps_sequence_number(metadata.format_version)
    return learned(metadata, branch, options.idle_learned_at_ms, keeps_sequence=keeps)


def busy_partitions(
    found: LiveFiles, options: CompactionOptions, rhythm: Rhythm | None
) -> BusyPartitions | None:
    """Return the partitions that a compaction leaves alone; None if that is not a condition.

    Args:
        found: the live files; with the columns `ACTIVITY_COLUMNS` if it is one.
        options: those of the compaction.
        rhythm: see `rhythm_of`.

    Raises:
        CorruptFileError: a delete manifest does not match its list.
    """
    if rhythm is not None:
        marked = rhythm.busy(found)
    elif (before_ms := options.changed_before_ms) is not None:
        marked = {
            spec_id: (activity.changed_ms > before_ms)[activity.codes]
            for spec_id, activity in activity_of(found).items()
        }
    else:
        return None
    names = [
        name
        for spec_id, entries in found.by_spec.items()
        for name in partition_names(
            entries.filter(pa.array(marked[spec_id])), spec_id, found.table.metadata
        ).names
    ]
    return BusyPartitions(marked=marked, names=names, rhythm=rhythm)
