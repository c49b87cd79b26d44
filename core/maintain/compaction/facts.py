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
    worst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts(Facts):
    """A group of files that are rewritten together; `partition` is None if they are in several."""

    number: int
    partition: str | None
    files: int
    bytes: int
    rows: int
    expected_output_files: int
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAlone(Facts):
    """The files that are left alone for one reason; the last two fields are of files of older partition specs."""

    files: int
    bytes: int
    expected_output_files: int | None = omitted()
    spec_id: int | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class RhythmFacts(Facts):
    """How often writers change rows of the branch.

    `interval_ms` is measured on the last `commits`; a partition without a change for `idle_ms` is idle.
    """

    writers: Sequence[str]
    commits: int
    interval_ms: int
    idle_ms: int
    last_commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFacts(Facts):
    """The plan of a compaction that is due.

    `row_groups_to_copy` is how many row groups are copied if their files allow it.
    """

    condition: ConditionFacts | None = inlined()
    groups: int = 0
    input_files: int = 0
    input_bytes: int = 0
    input_delete_files: int = 0
    expected_output_files: int = 0
    row_groups_to_copy: int = 0
    sorted_by: Sequence[str] | None = omitted()
    depth: DepthFacts | None = omitted()
    expected_depth: DepthFacts | None = omitted()
    remaining_files: int | None = omitted()
    busy_partitions: int | None = omitted()
    rhythm: RhythmFacts | None = omitted()
    file_groups: Sequence[GroupFacts] = ()
    left_alone: Mapping[str, LeftAlone] = field(default_factory=dict)
    total_data_files: int = 0
    total_files_size: int = 0

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
    """A group of files that other writers changed each time, and that is left for the next run.

    `partition` is None if they are in several; `lost_to` is how often it was lost to each writer.
    """

    partition: str | None
    files: int
    times: int
    lost_to: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class CompactionResult(Facts):
    """What a compaction committed, over all its commits.

    `decoded_row_groups` is how many row groups could not be copied as planned, by the reason.
    """

    rewritten_files: int = 0
    added_files: int = 0
    rewritten_bytes: int = 0
    added_bytes: int = 0
    removed_delete_files: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_dropped_by_deletes: int = 0
    failed_groups: int = 0
    copied_row_groups: int = 0
    decoded_row_groups: Mapping[str, int] | None = omitted()
    lost_groups: Sequence[LostGroup] | None = omitted()
    depth: DepthFacts | None = omitted()
