"""`lake health` and `lake maintain` on tables with known ills of Java, PyIceberg and Flink."""

from __future__ import annotations

from typing import Any

import pytest
from support.fleet import judge
from support.fleet.fleet import Fleet
from support.fleet.killing import killed_runs
from support.fleet.moulds import MOULDS
from support.fleet.two_hosts import at_once

pytestmark = [pytest.mark.java, pytest.mark.slow]
# One of each kind; `python -m soak.fleet` has all of them, and many copies of each.
_CHOSEN = frozenset(
    {
        *("small_files_truncate", "vectors", "position_deletes_identity", "equality_deletes_day"),
        *("held_snapshots", "manifests_identity", "old_order", "statistics", "orphans"),
        *("tidy_hour", "empty", "added_v2", "old_appends"),
        *("flink_c2_upsert_part", "flink_b2_append_pending"),
        *("missing_file", "cut_metadata", "cut_manifest", "missing_list"),
    }
)
_COPIES = 6


@pytest.fixture(scope="module")
def fleet(java: Any, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The tables; each test restores them."""
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    moulds = [mould for mould in MOULDS if mould.name in _CHOSEN]
    made.make(java, len(moulds) + _COPIES, moulds)
    return made


@pytest.fixture(scope="module")
def rows(java: Any, fleet: Fleet) -> judge.Rows:
    """What Java and PyIceberg read from them."""
    fleet.restored()
    return judge.by_moulds(fleet, judge.rows_of(fleet, java, judge.firsts(fleet)))


def test_every_ill_is_named_and_mended_no_row_changes_and_the_second_run_has_nothing_to_do(
    java: Any, fleet: Fleet, rows: judge.Rows
) -> None:
    fleet.restored()

    before = judge.Graded(fleet)
    first = judge.maintained(fleet, "mend", new_log=True)
    second = judge.maintained(fleet, "mend")
    after = judge.Graded(fleet)

    assert judge.not_said(fleet, before, first) == []
    assert judge.left(fleet, after) == []
    assert judge.done_again(fleet, second) == []
    assert judge.changed(rows, judge.rows_of(fleet, java)) == []


def test_two_hosts_at_once_do_no_work_twice(java: Any, fleet: Fleet, rows: judge.Rows) -> None:
    assert at_once(fleet) == []
    assert judge.changed(rows, judge.rows_of(fleet, java)) == []


def test_runs_that_are_killed_at_random_times_converge(
    java: Any, fleet: Fleet, rows: judge.Rows
) -> None:
    assert killed_runs(fleet, 4, "killed") == []
    assert judge.changed(rows, judge.rows_of(fleet, java)) == []
