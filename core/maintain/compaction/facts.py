"""What a compaction plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import Facts, inlined, omitted
from lake.core.base.units import counted, format_duration
from lake.core.spec.expressions.conditions import ConditionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthFacts(Facts):
    """How many files of a partition contain the place in the sort order where a file begins, with the file itself."""

    average: float
    """The average over all files."""
    worst: int
    """The greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts(Facts):
    """A group of files that are rewritten together."""

    number: int
    """The number of the group."""
    partition: str | None
    """The partition, as its folder is named; null if the files are in several."""
    files: int
    """Data files to rewrite."""
    bytes: int
    """Their bytes."""
    rows: int
    """Their rows."""
    expected_output_files: int
    """Data files that are expected to replace them."""
    reasons: Sequence[str]
    """Why: `small-files`, `large-files`, `deletes`, `rewrite-all`, `old-specs`, `old-sort-orders`, `overlap`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAlone(Facts):
    """The files that are left alone for one reason."""

    files: int
    """Data files."""
    bytes: int
    """Their bytes."""
    expected_output_files: int | None = omitted()
    """With `more-partitions`, the files that they would become."""
    spec_id: int | None = omitted()
    """With `more-partitions`, the current partition spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RhythmFacts(Facts):
    """How often writers change rows of the branch."""

    writers: Sequence[str]
    """The programs that write to the branch."""
    commits: int
    """How many of their last commits were measured."""
    interval_ms: int
    """The milliseconds between two of these."""
    idle_ms: int
    """A partition without a change for this long is idle."""
    last_commit: str | None
    """The time of the last one; null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFacts(Facts):
    """The plan of a compaction."""

    condition: ConditionFacts | None = inlined()
    groups: int = 0
    """The number of groups of files that are rewritten together."""
    input_files: int = 0
    """Data files to rewrite."""
    input_bytes: int = 0
    """Their bytes."""
    input_delete_files: int = 0
    """Delete files that apply to them."""
    expected_output_files: int = 0
    """Data files that are expected to replace them."""
    row_groups_to_copy: int = 0
    """Row groups that are copied if their files allow it."""
    sorted_by: Sequence[str] | None = omitted()
    """The order, if rows are sorted."""
    depth: DepthFacts | None = omitted()
    """With `where_overlap=`, how many files of a partition contain the place where a file begins."""
    expected_depth: DepthFacts | None = omitted()
    """The same after all files that are chosen were rewritten."""
    remaining_files: int | None = omitted()
    """With `max_files=`, the files that it leaves out."""
    busy_partitions: int | None = omitted()
    """Partitions that are left alone because they changed too recently."""
    rhythm: RhythmFacts | None = omitted()
    """How often writers change the branch."""
    file_groups: Sequence[GroupFacts] = ()
    """The groups; a dry run shows 50, with `verbose=` all."""
    left_alone: Mapping[str, LeftAlone] = field(default_factory=dict)
    """The files that are not rewritten, by the reason."""
    total_data_files: int = 0
    """All data files that `where=` selects."""
    total_files_size: int = 0
    """Their bytes."""

    @property
    def busy_text(self) -> str:
        """Why partitions are left alone, for people; empty if none are."""
        if not self.busy_partitions:
            return ""
        count = counted(self.busy_partitions, "partition")
        if self.rhythm is None:
            return f"{count} changed too recently"
        return (
            f"{count} {'is' if self.busy_partitions == 1 else 'are'} left to {' and '.join(self.rhythm.writers)} "
            f"(a change of rows every {format_duration(self.rhythm.interval_ms / 1000)}) until nothing has changed "
            f"for {format_duration(self.rhythm.idle_ms / 1000)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LostGroup(Facts):
    """A group of files that other writers changed each time, and that is left for the next run."""

    partition: str | None
    """The partition, as its folder is named; null if the files are in several."""
    files: int
    """Data files of the group."""
    times: int
    """How often it was lost."""
    lost_to: Mapping[str, int]
    """How often it was lost to each writer."""


@dataclass(slots=True, kw_only=True)
class CompactionResult(Facts):
    """What a compaction committed, over all its commits."""

    rewritten_files: int = 0
    """Data files that were replaced."""
    added_files: int = 0
    """Data files that replace them."""
    rewritten_bytes: int = 0
    """Bytes of the replaced files."""
    added_bytes: int = 0
    """Bytes of the new files."""
    removed_delete_files: int = 0
    """Delete files that were removed."""
    rows_in: int = 0
    """Rows of the replaced files."""
    rows_out: int = 0
    """Rows of the new files."""
    rows_dropped_by_deletes: int = 0
    """Rows that deletes removed."""
    failed_groups: int = 0
    """Groups that failed and stay as they are."""
    copied_row_groups: int = 0
    """Row groups that were copied without decoding."""
    decoded_row_groups: Mapping[str, int] | None = omitted()
    """Row groups that could not be copied as planned, by the reason."""
    lost_groups: Sequence[LostGroup] | None = omitted()
    """Groups for which other writers were faster, each time."""
    depth: DepthFacts | None = omitted()
    """With `where_overlap=`, the depth after the run."""
