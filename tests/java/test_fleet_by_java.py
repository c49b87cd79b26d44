"""`lake health` and `lake maintain` on tables with known ills of Java, PyIceberg and Flink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.fleet import judge
from support.fleet.fleet import Fleet
from support.fleet.moulds import MOULDS

pytestmark = pytest.mark.java
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


@pytest.mark.slow
def test_every_ill_is_named_and_mended_no_row_changes_and_the_second_run_has_nothing_to_do(
    java: Any, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path)
    moulds = [mould for mould in MOULDS if mould.name in _CHOSEN]
    fleet.make(java, len(moulds) + _COPIES, moulds)
    rows = judge.rows_of(fleet, java)

    before = judge.Graded(fleet)
    first = judge.maintained(fleet, "runs")
    second = judge.maintained(fleet, "runs")
    after = judge.Graded(fleet)

    assert judge.not_said(fleet, before, first) == []
    assert judge.left(fleet, after) == []
    assert judge.done_again(fleet, second) == []
    assert judge.changed(rows, judge.rows_of(fleet, java)) == []
