"""Change logs of random histories: applied to the rows of one snapshot they give those of another."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.oracles.history_model import History, Row
from support.tiers import examples

from lake.core.read.changelog import row_spool
from lake.core.read.changelog.plan import plan_changelog
from lake.core.read.changelog.read import changes_of
from lake.core.read.changelog.task_unit import ChangeUnit
from lake.core.read.changelog.task_units import units_of
from lake.core.read.scan.plan import ScanOptions

ADDING = {"insert", "update_after"}

ids = st.none() | st.integers(0, 6)
names = st.none() | st.sampled_from("ab")
row_lists = st.lists(st.tuples(ids, names), max_size=7)
actions = st.one_of(
    st.tuples(st.just("append"), row_lists),
    st.tuples(st.just("overwrite"), st.integers(0, 9), row_lists, st.integers(0, 3)),
    st.tuples(
        st.just("delete_positions"),
        st.integers(0, 9),
        st.sets(st.integers(0, 7), min_size=1),
        row_lists,
    ),
    st.tuples(st.just("delete_keys"), st.lists(ids, min_size=1, max_size=3), row_lists),
    st.tuples(st.just("compact")),
)


def changes(history: History, start: int | None, end: int, **options: Any) -> list[dict[str, Any]]:
    """Return the change log after a snapshot up to another, read as tasks read it."""
    key = options.pop("key", ())
    asked = ScanOptions(
        from_snapshot=None if start is None else str(start), to_snapshot=str(end), **options
    )
    plan = plan_changelog(history.session.table("db.t"), asked, key)
    rows = []
    for unit in units_of(plan):
        sent = ChangeUnit.from_plain(json.loads(json.dumps(unit.to_plain())))
        for batch in changes_of(history.table.storage, sent, plan.projection, Counter()):
            assert batch.num_rows
            rows += batch.to_pylist()
    return rows


def applied(rows: Counter[Row], log: list[dict[str, Any]]) -> Counter[Row]:
    """Apply a change log; a row that goes must be there."""
    now = Counter(rows)
    for change in log:
        row = change["id"], change["name"]
        if change["_change_type"] in ADDING:
            now[row] += 1
        else:
            assert now[row] > 0, change
            now[row] -= 1
    return +now


def operations(history: History) -> dict[int, str]:
    return {
        item.snapshot_id: str(item.summary.operation.value)
        for item in history.table.metadata.snapshots
        if item.summary
    }


@pytest.mark.parametrize(
    "version", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("key", [(), ("id",)])
@settings(
    deadline=None,
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(actions, min_size=2, max_size=9), st.data())
def test_changes_lead_from_any_snapshot_to_any_later_one(
    version: int,
    key: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    done: list[tuple[Any, ...]],
    data: st.DataObject,
) -> None:
    history = History(tmp_path_factory.mktemp("wh"), version)
    for name, *arguments in done:
        if version > 1 or not name.startswith("delete"):
            getattr(history, name)(*arguments)
    if not history.states:
        return
    numbers = st.integers(0, len(history.states) - 1)
    first, last = sorted((data.draw(numbers), data.draw(numbers)))
    start, before = history.states[first]
    end, after = history.states[last]

    log = changes(history, start, end, key=key)

    assert applied(before, log) == after
    assert applied(Counter(), changes(history, None, end, key=key)) == after
    snapshot_ids = [item for item, _ in history.states[first + 1 : last + 1]]
    snapshot_ids = [item for item in snapshot_ids if operations(history)[item] != "replace"]
    assert {row["_commit_snapshot_id"] for row in log} <= set(snapshot_ids)
    assert all(snapshot_ids[row["_change_ordinal"]] == row["_commit_snapshot_id"] for row in log)
    ordinals = [row["_change_ordinal"] for row in log]
    assert ordinals == sorted(ordinals)


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.slow)])
@settings(
    deadline=None,
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(actions, min_size=2, max_size=9))
def test_each_commit_is_shown_as_the_fewest_changes(
    version: int, tmp_path_factory: pytest.TempPathFactory, done: list[tuple[Any, ...]]
) -> None:
    history = History(tmp_path_factory.mktemp("wh"), version)
    for name, *arguments in done:
        getattr(history, name)(*arguments)
    if not history.states:
        return

    log = changes(history, None, history.states[-1][0], key=("id",))

    before: Counter[Row] = Counter()
    kinds = operations(history)
    for snapshot_id, after in history.states:
        mine = [row for row in log if row["_commit_snapshot_id"] == snapshot_id]
        came, went = Counter(), Counter()  # type: ignore[var-annotated]
        for row in mine:
            side = came if row["_change_type"] in ADDING else went
            side[row["id"], row["name"]] += 1
        assert not mine or kinds[snapshot_id] != "replace"
        assert came == after - before
        assert went == before - after
        check_updates(mine)
        before = after


def check_updates(log: list[dict[str, Any]]) -> None:
    """Updates are pairs, one behind the other, of keys that went once and came once."""
    by_key: dict[Any, list[str]] = {}
    for row in log:
        by_key.setdefault(row["id"], []).append(row["_change_type"])
    for kinds in by_key.values():
        went, came = (sum((kind in ADDING) == side for kind in kinds) for side in (False, True))
        if went == came == 1:
            assert kinds == ["update_before", "update_after"]
        else:
            assert not {"update_before", "update_after"} & set(kinds)


@settings(
    deadline=None,
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(actions, min_size=2, max_size=8), st.sampled_from(["id > 2", "name is null"]))
def test_filtered_and_projected_changes_are_those_of_what_is_shown(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[Any, ...]], where: str
) -> None:
    history = History(tmp_path_factory.mktemp("wh"), 2)
    for name, *arguments in done:
        getattr(history, name)(*arguments)
    if not history.states:
        return
    shown = {"id > 2": lambda row: (row[0] or 0) > 2, "name is null": lambda row: row[1] is None}
    kept = shown[where]

    log = changes(history, None, history.states[-1][0], where=where, select=["name"])

    now: Counter[Any] = Counter()
    for row in log:
        assert list(row) == ["name", "_change_type", "_change_ordinal", "_commit_snapshot_id"]
        now[row["name"]] += 1 if row["_change_type"] == "insert" else -1
    expected = Counter(row[1] for row in history.rows.elements() if kept(row))
    assert +now == expected
    assert not -now


def test_changes_that_do_not_fit_in_memory_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path, 2)
    history.append([(n % 300, f"n{n}") for n in range(2000)])
    history.overwrite(0, [(n, "new") for n in range(100, 400)], kept=900)
    start, end = (item for item, _ in history.states)
    small = changes(history, start, end, key=("id",))

    monkeypatch.setattr(row_spool, "MEMORY_BYTES", 1000)
    large = changes(history, start, end, key=("id",))

    assert applied(history.states[0][1], large) == history.rows
    assert Counter(map(str, large)) == Counter(map(str, small))
    check_updates(large)
