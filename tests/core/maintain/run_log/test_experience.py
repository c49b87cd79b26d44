"""What entries mean for the next attempt: failures back off, what saved nothing cools down, and no wait is long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.run_logs import DAY, HOUR, MINUTE, compacted, entry, failed
from support.tiers import examples

from lake.core.base.errors import OutOfTimeError, StoppedError
from lake.core.base.outcome import Status
from lake.core.base.units import iso_time
from lake.core.maintain.run_log.entries import Entry, Measures
from lake.core.maintain.run_log.experience import (
    PATIENCE,
    Experience,
    Experiences,
    bought_nothing,
    saved_seconds,
)

NOW = 1_800_000_000_000
STOPPED = failed(error=StoppedError(15).facts())
BUSY = entry(status=str(Status.ALREADY_RUNNING))


def at(age_ms: int, one: Entry) -> Entry:
    return replace(one, at=iso_time(NOW - age_ms) or "")


def known(*entries: Entry) -> Experience:
    return Experiences(entries, NOW).of("uuid-1", "compact")


KINDS = {
    "done": entry(),
    "nothing": entry(status="nothing-to-do"),
    "partial": entry(status="partial"),
    "saved": compacted(),
    "saved nothing": compacted(after_s=3.0),
    "failed": failed(),
    "conflict": failed(status="conflict"),
    "stopped": STOPPED,
    "busy": BUSY,
}
ENDED = {"done", "nothing", "partial", "saved", "saved nothing"}
FAILED = {"failed", "conflict"}
HISTORIES = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.integers(-DAY, 30 * DAY)), max_size=40
)


def history(found: Sequence[tuple[str, int]]) -> list[Entry]:
    return [at(age_ms, KINDS[kind]) for kind, age_ms in found]


@settings(max_examples=examples(1_000))
@given(found=HISTORIES)
def test_no_action_waits_longer_than_a_day(found: list[tuple[str, int]]) -> None:
    waited = known(*history(found)).wait_until_ms

    assert waited is None or waited <= NOW + DAY


@settings(max_examples=examples(1_000))
@given(found=HISTORIES)
def test_the_failures_since_the_last_success_count_and_fewer_than_three_wait_for_nothing(
    found: list[tuple[str, int]],
) -> None:
    past = [kind for kind, age_ms in found if age_ms >= 0]
    last_end = max((number for number, kind in enumerate(past) if kind in ENDED), default=-1)
    failures = sum(kind in FAILED for kind in past[last_end + 1 :])

    experience = known(*history(found))

    assert experience.failures == failures
    useless = last_end >= 0 and past[last_end] == "saved nothing" and not failures
    assert (experience.wait_until_ms is not None) == (failures >= PATIENCE or useless)
    assert bool(experience.reason) == (experience.wait_until_ms is not None)


@settings(max_examples=examples(500))
@given(found=HISTORIES, end=st.sampled_from(sorted(ENDED - {"saved nothing"})))
def test_a_success_ends_every_wait(found: list[tuple[str, int]], end: str) -> None:
    experience = known(*history(found), at(0, KINDS[end]))

    assert experience == Experience(
        done_ms=NOW, seconds=KINDS[end].seconds, is_unfinished=end == "partial"
    )


@settings(max_examples=examples(500))
@given(found=HISTORIES, neither=st.lists(st.sampled_from(["stopped", "busy"]), max_size=5))
def test_a_stop_and_another_run_change_nothing(
    found: list[tuple[str, int]], neither: list[str]
) -> None:
    entries = history(found)

    assert known(*entries, *(at(0, KINDS[kind]) for kind in neither)) == known(*entries)


@settings(max_examples=examples(500))
@given(found=HISTORIES, later=st.lists(st.sampled_from(sorted(KINDS)), max_size=5))
def test_entries_of_the_future_do_not_count(found: list[tuple[str, int]], later: list[str]) -> None:
    entries = history(found)

    assert known(*entries, *(at(-1, KINDS[kind]) for kind in later)) == known(*entries)


@pytest.mark.parametrize(
    ("failures", "wait_ms"),
    [
        (2, None),
        (3, 15 * MINUTE),
        (4, 30 * MINUTE),
        (5, HOUR),
        (9, 16 * HOUR),
        (10, DAY),
        (1_000, DAY),
    ],
)
def test_the_wait_doubles_with_each_failure_after_the_third(
    failures: int, wait_ms: int | None
) -> None:
    experience = known(*(at(failures - number, failed()) for number in range(failures)))

    expected = None if wait_ms is None else NOW - 1 + wait_ms
    assert experience.wait_until_ms == expected


def test_each_action_on_each_table_has_its_own_experience() -> None:
    entries = [at(1, failed(table_uuid=uuid, action=action)) for uuid in "ab" for action in "xy"]
    entries += [at(1, failed(table_uuid="a", action="x"))] * 2
    experiences = Experiences(entries, NOW)

    assert [experiences.of(uuid, action).failures for uuid in "ab" for action in "xy"] == [
        *(3, 1, 1, 1),
    ]
    assert experiences.of("c", "x") == Experience()
    ((last, found),) = experiences.waiting()
    assert (last.table_uuid, last.action) == ("a", "x")
    assert found == experiences.of("a", "x")


def test_what_has_waited_long_enough_does_not_wait() -> None:
    entries = [at(HOUR, failed())] * 3

    assert known(*entries).wait_until_ms == NOW - HOUR + 15 * MINUTE
    assert list(Experiences(entries, NOW).waiting()) == []


@pytest.mark.parametrize(
    ("one", "saved", "useless"),
    [
        (compacted(), 2.0, False),
        (compacted(after_s=3.0), 0.0, True),
        (compacted(after_s=4.0), -1.0, True),
        (compacted(after_s=4.0, bytes=0), -1.0, False),
        (compacted(after_s=4.0, bytes=None), -1.0, False),
        (compacted(after=None), None, False),
        (compacted(before=None), None, False),
        (compacted(after=Measures(files=6)), None, False),
        (entry(), None, False),
    ],
)
def test_an_action_is_useless_if_it_rewrote_files_and_a_scan_is_not_faster(
    one: Entry, saved: float | None, useless: bool
) -> None:
    assert (saved_seconds(one), bought_nothing(one)) == (saved, useless)


def test_the_larger_gain_of_a_scan_and_of_one_partition_counts() -> None:
    before = Measures(scan_seconds=3.0, partition_scan_seconds=2.0)
    after = Measures(scan_seconds=3.0, partition_scan_seconds=1.5)

    assert saved_seconds(entry(before=before, after=after)) == 0.5
    assert saved_seconds(entry(before=before, after=Measures(scan_seconds=2.0))) == 1.0


def test_an_action_without_more_time_waits_for_a_day_and_needs_as_much_time_as_it_had() -> None:
    ended = replace(failed(error=OutOfTimeError("the time has ended").facts()), seconds=7.0)

    experience = known(at(2 * HOUR, entry()), at(HOUR, ended))

    assert experience == Experience(
        done_ms=NOW - 2 * HOUR,
        seconds=7.0,
        is_unfinished=True,
        wait_until_ms=NOW - HOUR + DAY,
        reason="its time ended last time",
    )
    # Neither is it a failure, nor does it end failures.
    assert known(at(3 * HOUR, failed()), at(HOUR, ended)).failures == 1
    assert known(at(HOUR, ended), at(0, entry())).wait_until_ms is None
