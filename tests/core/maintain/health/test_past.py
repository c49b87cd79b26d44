"""What past runs show about costs, from entries of a run log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.run_logs import DISK_FULL, entry

from lake.core.maintain.health.costs import AT_ONCE, LOCAL, OBJECT_STORE
from lake.core.maintain.health.past import LEAST_RUNS, NOTHING, Past, store_name, work_seconds
from lake.core.maintain.run_log.entries import Entry, ExpectedFacts, Measures

PLACE, STORE = "s3://bucket/db/t", "s3://bucket"
MB = 1 << 20


def rewrite(*, seconds: float, size: int = 100 * MB, **changes: Any) -> Entry:
    """Return the entry of a compaction that took so long."""
    return entry(**{"seconds": seconds, "bytes": size, "store": STORE, **changes})


def measured(latency: float, **changes: Any) -> Entry:
    """Return the entry of an expiry after which ten manifests were read, each after such a wait."""
    after = Measures(
        manifests=10, manifest_bytes=0, files=0, measured_seconds=10 * LOCAL.manifest + 12 * latency
    )
    return entry(**{"action": "expire", "store": STORE, "after": after, **changes})


def test_without_runs_costs_are_the_stated_ones() -> None:
    few = Past([measured(0.5)] * (LEAST_RUNS - 1))

    for past in (NOTHING, few):
        assert past.costs(OBJECT_STORE, PLACE) is OBJECT_STORE or past is few
        assert past.costs(OBJECT_STORE, PLACE) == OBJECT_STORE
    assert NOTHING.work("uuid-1", PLACE, "compact", 50_000_000).seconds == 1.2
    assert NOTHING.work("uuid-1", PLACE, "compact", 0).runs == 0


def test_a_store_that_answers_slowly_makes_files_and_manifests_dear() -> None:
    waits = [0.4, 0.4, 0.4, 0.4, 60.0, 0.001, 0.4]

    costs = Past([measured(wait) for wait in waits]).costs(OBJECT_STORE, PLACE)

    assert costs.runs == len(waits)
    assert costs.manifest == pytest.approx(LOCAL.manifest + 0.4 / AT_ONCE)
    assert costs.file == pytest.approx(LOCAL.file + 2 * 0.4 / AT_ONCE)
    assert costs.data_byte == OBJECT_STORE.data_byte


def test_other_stores_and_local_disks_keep_their_costs() -> None:
    past = Past([measured(0.4)] * 10)

    assert past.costs(OBJECT_STORE, "s3://other/db/t") == OBJECT_STORE
    local = Past([measured(0.4, store="file://")] * 10).costs(LOCAL, "/lake/db/t")
    assert (local.file, local.manifest) == (LOCAL.file, LOCAL.manifest)


def test_slow_rewrites_make_bytes_dear_within_bounds() -> None:
    stated = work_seconds(100 * MB)
    slow = Past([rewrite(seconds=0.2 + 2 * (stated - 0.2))] * 5).costs(OBJECT_STORE, PLACE)
    still = Past([rewrite(seconds=1e9)] * 5).costs(OBJECT_STORE, PLACE)
    small = Past([rewrite(seconds=1e9, size=MB)] * 5).costs(OBJECT_STORE, PLACE)

    assert slow.data_byte == pytest.approx(2 * OBJECT_STORE.data_byte)
    assert still.data_byte == pytest.approx(4 * OBJECT_STORE.data_byte)
    assert small.data_byte == OBJECT_STORE.data_byte


def test_an_action_takes_what_it_took_on_the_same_table_before() -> None:
    own = [rewrite(seconds=3 * work_seconds(100 * MB))] * 2
    others = [rewrite(seconds=7 * work_seconds(MB), size=MB, table_uuid="uuid-2")] * LEAST_RUNS
    past = Past([*own, *others])

    ours, theirs = (past.work(name, PLACE, "compact", 10 * MB) for name in ("uuid-1", "uuid-3"))

    assert (ours.runs, theirs.runs) == (2, LEAST_RUNS + 2)
    assert ours.seconds == pytest.approx(3 * work_seconds(10 * MB), abs=1e-3)
    assert theirs.seconds == pytest.approx(7 * work_seconds(10 * MB), abs=1e-3)
    assert past.work("uuid-1", PLACE, "expire", 0).runs == 0


def test_runs_that_failed_or_did_nothing_show_nothing() -> None:
    runs = [
        rewrite(seconds=100, error=DISK_FULL, status="failed"),
        rewrite(seconds=100, status="nothing-to-do"),
    ]

    past = Past(runs * LEAST_RUNS)

    assert past.costs(OBJECT_STORE, PLACE) == OBJECT_STORE
    assert past.work("uuid-1", PLACE, "compact", MB).runs == 0


def test_only_the_newest_runs_count() -> None:
    past = Past([*[measured(2.0)] * 200, *[measured(0.1)] * 50])

    costs = past.costs(OBJECT_STORE, PLACE)

    assert (costs.runs, costs.manifest) == (50, pytest.approx(LOCAL.manifest + 0.1 / AT_ONCE))


def test_a_store_is_named_without_its_user() -> None:
    assert store_name("s3a://bucket/db/t") == STORE
    assert store_name("abfss://me@account.host/db") == "abfss://account.host"
    assert store_name("/lake/db/t") == store_name("file:///lake/db/u")


_NUMBERS = st.integers(0, 2**62)
_SECONDS = st.floats(0, 1e18, allow_nan=False)


@given(
    st.lists(
        st.builds(
            entry,
            seconds=_SECONDS,
            bytes=st.none() | _NUMBERS,
            store=st.sampled_from([None, STORE]),
            forecast=st.none()
            | st.builds(
                ExpectedFacts,
                before=_NUMBERS,
                after=_NUMBERS,
                bytes=_NUMBERS,
                seconds=_SECONDS,
            ),
            after=st.none()
            | st.builds(
                Measures,
                files=_NUMBERS,
                manifests=_NUMBERS,
                manifest_bytes=_NUMBERS,
                measured_seconds=_SECONDS,
            ),
        ),
        max_size=12,
    ),
    _NUMBERS,
)
def test_whatever_a_log_contains_costs_are_bounded(entries: list[Entry], size: int) -> None:
    past = Past(entries)

    costs = past.costs(OBJECT_STORE, PLACE)

    assert LOCAL.file <= costs.file <= LOCAL.file + 2 * 2.0 / AT_ONCE
    assert LOCAL.manifest <= costs.manifest <= LOCAL.manifest + 2.0 / AT_ONCE
    assert 0.25 <= costs.data_byte / OBJECT_STORE.data_byte <= 4
    work = past.work("uuid-1", PLACE, "compact", size).seconds
    assert 0.01 <= work / work_seconds(size) <= 51
