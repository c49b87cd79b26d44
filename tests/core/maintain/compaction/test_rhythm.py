"""The rhythm of writers, learned from the snapshots of tables whose metadata is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from lake.core.maintain.compaction.concurrency.rhythm import (
    Rhythm,
    conflicts_with_rewrites,
    learned,
)

NOW_MS = 1_900_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
DELETES = {"operation": "delete", "added-position-delete-files": "1", "engine-name": "spark"}
UPSERT = {
    "operation": "overwrite",
    "added-data-files": "1",
    "added-equality-delete-files": "1",
    "added-position-delete-files": "1",
    "flink.job-id": "5f3a",
    "flink.max-committed-checkpoint-id": "7",
}


def metadata_of(
    ages_ms: Sequence[int], summary: Mapping[str, str] = DELETES, *, expired: bool = False
) -> TableMetadata:
    """Return a table whose snapshots have these ages, oldest first, and the summary; the first has no parent."""
    return of_summaries([(age, summary) for age in ages_ms], expired=expired)


def of_summaries(
    commits: Sequence[tuple[int, Mapping[str, str]]], *, expired: bool = False
) -> TableMetadata:
    snapshots: list[dict[str, Any]] = [
        {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": NOW_MS - age,
            "manifest-list": f"file:///t/{number}.avro",
            "summary": dict(summary),
            **({"parent-snapshot-id": number - 1} if number > 1 or expired else {}),
        }
        for number, (age, summary) in enumerate(commits, start=1)
    ]
    return TableMetadataUtil.parse_obj(
        {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "file:///t",
            "last-sequence-number": len(snapshots),
            "last-updated-ms": NOW_MS,
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [
                {
                    "type": "struct",
                    "schema-id": 0,
                    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
                }
            ],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
            "current-snapshot-id": len(snapshots),
            "snapshots": snapshots,
        }
    )


def rhythm_of(metadata: TableMetadata, *, keeps_sequence: bool = True) -> Rhythm | None:
    return learned(metadata, "main", NOW_MS, keeps_sequence=keeps_sequence)


def every(interval_ms: int, count: int, last_ms: int = 0) -> list[int]:
    """Return the ages of commits at an interval, oldest first."""
    return [last_ms + interval_ms * number for number in reversed(range(count))]


def test_the_interval_of_a_writer_that_deletes_rows_is_measured() -> None:
    found = rhythm_of(metadata_of(every(MINUTE_MS, 30, last_ms=20_000)))
    assert found is not None
    assert (found.commits, found.interval_ms, found.idle_ms) == (30, MINUTE_MS, 3 * MINUTE_MS)
    assert found.writers == ("spark",)


def test_commits_that_cannot_conflict_are_not_a_rhythm() -> None:
    ages = every(MINUTE_MS, 30)
    assert rhythm_of(metadata_of(ages, {"operation": "append", "added-data-files": "1"})) is None
    assert rhythm_of(metadata_of(ages, {"operation": "replace", "deleted-data-files": "9"})) is None
    assert rhythm_of(metadata_of(ages, UPSERT)) is None
    # With new sequence numbers, the equality deletes of a sink conflict with a rewrite.
    assert rhythm_of(metadata_of(ages, UPSERT), keeps_sequence=False) is not None


@pytest.mark.parametrize(
    ("summary", "conflicts"),
    [
        ({"operation": "overwrite", "deleted-data-files": "3"}, True),
        ({"operation": "delete", "added-dvs": "1"}, True),
        ({**UPSERT, "engine-name": "lake"}, True),
        ({**UPSERT, "deleted-data-files": "1"}, True),
        ({**UPSERT, "engine-name": "flink"}, False),
        ({"operation": "overwrite", "added-equality-deletes": "3"}, False),
        ({"operation": "overwrite", "added-data-files": "3"}, False),
        ({"operation": "overwrite", "deleted-data-files": "many", "added-data-files": "3"}, False),
        # Nothing is counted, so nothing is known but the operation.
        ({"operation": "overwrite"}, True),
    ],
)
def test_a_summary_shows_whether_a_commit_conflicts_with_a_rewrite(
    summary: Mapping[str, str], *, conflicts: bool
) -> None:
    (snapshot,) = metadata_of([0], summary).snapshots
    assert conflicts_with_rewrites(snapshot, keeps_sequence=True) is conflicts


@pytest.mark.parametrize(
    ("what", "ages"),
    [
        ("too few commits", every(2 * MINUTE_MS, 9)),
        ("a load by hand that took a few minutes", every(5_000, 60)),
        ("a job that leaves enough time for a rewrite", every(15 * MINUTE_MS, 60)),
        ("a writer that has ended", every(MINUTE_MS, 30, last_ms=3 * MINUTE_MS + 1)),
        ("a writer of the day before", every(MINUTE_MS, 30, last_ms=25 * HOUR_MS)),
        ("a clock that is ahead by hours", every(MINUTE_MS, 30, last_ms=-5 * HOUR_MS)),
        ("a writer that nothing interrupts for hours", every(MINUTE_MS, 361)),
    ],
)
def test_these_are_not_writers_that_a_compaction_waits_for(what: str, ages: list[int]) -> None:
    assert rhythm_of(metadata_of(ages)) is None, what


def test_one_long_pause_does_not_change_the_interval() -> None:
    night = [age + 10 * HOUR_MS for age in every(MINUTE_MS, 25)]
    found = rhythm_of(metadata_of([*night, *every(MINUTE_MS, 20)]))
    assert found is not None
    assert found.interval_ms == MINUTE_MS


def test_clocks_that_go_back_and_forth_are_put_in_order() -> None:
    ages = every(MINUTE_MS, 30)
    ages[5], ages[20], ages[-1] = 0, 40 * MINUTE_MS, -30_000
    found = rhythm_of(metadata_of(ages))
    assert found is not None
    assert MINUTE_MS <= found.interval_ms <= 2 * MINUTE_MS
    assert max(found.times.values()) == NOW_MS


def test_a_time_far_away_neither_hides_a_rhythm_nor_fails() -> None:
    ages = [*every(MINUTE_MS, 30), -(1 << 62), NOW_MS + 1]
    assert rhythm_of(metadata_of(ages)) is not None


def test_a_compaction_begins_the_time_again_for_which_partitions_are_left_alone() -> None:
    commits: list[tuple[int, Mapping[str, str]]] = [(age, DELETES) for age in every(MINUTE_MS, 400)]
    commits.insert(390, (10 * MINUTE_MS, {"operation": "replace"}))
    assert rhythm_of(of_summaries(commits)) is not None


def test_a_history_that_expired_early_does_not_leave_a_partition_alone_forever() -> None:
    ages = every(MINUTE_MS, 60)
    assert rhythm_of(metadata_of(ages)) is not None
    assert rhythm_of(metadata_of(ages, expired=True)) is None


def test_intervals_of_many_kinds_end_when_the_writer_does() -> None:
    for pauses in ([60] * 30, [10, 110] * 15, [1, 1, 1, 1, 596] * 6):
        times = [0]
        for pause in pauses:
            times.append(times[-1] + pause * 1000)
        found = rhythm_of(metadata_of([times[-1] - time for time in times]))
        assert found is not None
        longest = max(after - before for before, after in pairwise(times))
        assert longest < found.idle_ms <= 3 * longest
