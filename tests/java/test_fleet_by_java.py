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


class Mended:
    """Two runs on the tables, one after the other, and what is shown and read before and after them."""

    def __init__(self, fleet: Fleet, java: Any) -> None:
        self.before = judge.Graded(fleet)
        self.first = judge.maintained(fleet, "mend", new_log=True)
        self.second = judge.maintained(fleet, "mend")
        self.after = judge.Graded(fleet)
        self.rows = judge.rows_of(fleet, java)


@pytest.fixture(scope="module")
def mended(java: Any, fleet: Fleet) -> Mended:
    """Two runs."""
    fleet.restored()
    return Mended(fleet, java)


def test_every_ill_is_named_and_mended_no_row_changes_and_the_second_run_has_nothing_to_do(
    fleet: Fleet, rows: judge.Rows, mended: Mended
) -> None:
    assert judge.not_said(fleet, mended.before, mended.first) == []
    assert judge.left(fleet, mended.after) == []
    assert judge.done_again(fleet, mended.second) == []
    assert judge.changed(rows, mended.rows) == []


def test_two_hosts_at_once_do_no_work_twice(
    java: Any, fleet: Fleet, rows: judge.Rows, mended: Mended
) -> None:
    assert at_once(fleet, mended.first) == []
    assert judge.changed(rows, judge.rows_of(fleet, java)) == []


def test_runs_that_are_killed_at_random_times_converge(
    java: Any, fleet: Fleet, rows: judge.Rows
) -> None:
    assert killed_runs(fleet, 4, "killed") == []
    assert judge.changed(rows, judge.rows_of(fleet, java)) == []
