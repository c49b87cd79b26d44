"""A run id counts on a branch while the run is in its history, whatever program expires the snapshots."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import ForbiddenError
from support.tables.iceberg_tables import (
    after,
    inject,
    open_session,
    refused_with,
    write_file,
)
from support.tables.table_harness import TableHarness
from support.tiers import examples

from lake.core.maintain.expiration.execute import execute
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.table.metadata.snapshot_updates import RemoveSnapshots
from lake.core.table.snapshots.run_ids import (
    EXPIRED_RUN_IDS,
    MAX_NOTED,
    RUN_ID,
    RUN_IDS,
    RUN_NOTES,
    has_run,
    run_summary,
)
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.guards import RunGuard
from lake.core.transaction.commit.operations import AppendFiles

DAY_MS = 24 * 3_600_000
FURTHER = f"{RUN_IDS}-further"


class RunTable(TableHarness):
    """A table whose commits are a day apart, and another engine that expires without notes."""

    @property
    def table(self) -> Any:
        return self.load()

    @property
    def notes(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.table.properties.get(RUN_IDS, "{}"))
        return found

    def run(self, run_id: str | None, branch: str = "main") -> Committed:
        self.clock.now += DAY_MS
        table, marks = self.table, {RUN_ID: run_id} if run_id else {}
        added = AppendFiles(added=[write_file(table, [1])])
        return self.commit_on(
            table, added, branch=branch, summary=marks, guard=RunGuard(run_id) if run_id else None
        )

    def expire_elsewhere(self) -> None:
        """Remove all snapshots but the heads, and forget nothing of the parents, as Java does."""
        table = self.pyiceberg
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        ids = [item.snapshot_id for item in table.metadata.snapshots]
        gone = [one for one in ids if one not in heads]
        table.catalog.commit_table(table, (), (RemoveSnapshots(snapshot_ids=gone),))

    def expire(self, days: float) -> None:
        moment = self.clock.now - int(days * DAY_MS)
        options = RetentionOptions(older_than=moment, unsafe_retention=True)
        execute(self.session, plan_expiration(self.session, self.table, options))

    def lose_log(self) -> None:
        """Remove the older metadata files."""
        for entry in self.table.metadata.metadata_log:
            Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)

    def has(self, run_id: str, branch: str = "main") -> bool:
        since_ms = self.clock.now - 30 * DAY_MS
        return has_run(self.table, branch, run_id, since_ms)


def rolled_back(harness: RunTable, run_id: str, target: int) -> None:
    harness.run(run_id)
    harness.pyiceberg.manage_snapshots().rollback_to_snapshot(target).commit()


@pytest.fixture
def harness(tmp_path: Path) -> RunTable:
    return RunTable(tmp_path)


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_run_counts_after_another_engine_expired_its_snapshot(
    tmp_path: Path, version: str
) -> None:
    harness = RunTable(tmp_path, format_version=version)
    first = harness.run("r1")
    harness.run("r2")
    harness.run(None)
    harness.expire_elsewhere()
    assert len(harness.table.metadata.snapshots) == 1

    assert harness.has("r1")
    assert harness.has("r2")
    again = harness.run("r1")
    assert (again.already, again.snapshot_ids) == (True, ())
    assert harness.table.metadata.snapshot_by_id(first.snapshot_id) is None


def test_a_run_that_was_rolled_back_does_not_count(harness: RunTable) -> None:
    first = harness.run("r1")
    harness.run("r2")
    harness.pyiceberg.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()

    assert harness.has("r1")
    assert not harness.has("r2")
    again = harness.run("r2")
    assert not again.already
    assert harness.notes["r2"][0] == again.snapshot_id


@pytest.mark.parametrize("logged", [True, False], ids=["", "without older metadata files"])
def test_a_run_that_was_rolled_back_and_expired_does_not_count(
    harness: RunTable, logged: bool
) -> None:
    first = harness.run("r1")
    harness.run("r2")
    harness.pyiceberg.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    harness.expire_elsewhere()
    if not logged:
        harness.lose_log()

    assert harness.has("r1")
    assert not harness.has("r2")


def test_a_later_commit_notices_a_rollback_before_the_expiry(harness: RunTable) -> None:
    first = harness.run("r1")
    harness.run("r2")
    harness.pyiceberg.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    harness.run(None)
    harness.run("r3")
    harness.expire_elsewhere()

    assert [harness.has(name) for name in ("r1", "r2", "r3")] == [True, False, True]


def test_the_log_of_metadata_shows_what_was_rolled_back_before_others_committed(
    harness: RunTable,
) -> None:
    first = harness.run("r1")
    harness.run("r2")
    harness.pyiceberg.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    for number in range(3):
        harness.pyiceberg.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]}))
    harness.expire_elsewhere()
    harness.pyiceberg.append(pa.table({"id": pa.array([9], pa.int64()), "name": ["n"]}))

    assert [harness.has("r1"), harness.has("r2")] == [True, False]
    harness.lose_log()
    # Without it, rows that might be there are not loaded again.
    assert [harness.has("r1"), harness.has("r2")] == [True, True]


def test_a_run_counts_where_its_branch_was_merged_and_dropped(harness: RunTable) -> None:
    harness.run("r1")
    head = harness.table.metadata.current_snapshot_id
    harness.pyiceberg.manage_snapshots().create_branch(head, "side").create_branch(
        head, "bad"
    ).commit()
    done = harness.run("r2", "side")
    harness.run("r3", "bad")
    harness.pyiceberg.manage_snapshots().set_current_snapshot(done.snapshot_id).commit()
    harness.pyiceberg.manage_snapshots().remove_branch("side").remove_branch("bad").commit()
    for number in range(2):
        harness.pyiceberg.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]}))
    harness.expire_elsewhere()

    assert [harness.has(name) for name in ("r1", "r2", "r3")] == [True, True, False]


def test_a_run_counts_on_a_branch_that_was_moved_forward_to_it(harness: RunTable) -> None:
    harness.run("r1")
    harness.pyiceberg.manage_snapshots().create_branch(
        harness.table.metadata.current_snapshot_id, "side"
    ).commit()
    done = harness.run("r2", "side")
    assert not harness.has("r2")
    harness.pyiceberg.manage_snapshots().set_current_snapshot(done.snapshot_id).commit()
    harness.expire_elsewhere()

    assert harness.has("r2")
    assert harness.has("r2", "side")


def test_a_run_that_was_picked_to_a_branch_counts_after_its_first_snapshot_expired(
    harness: RunTable,
) -> None:
    harness.run("r0")
    harness.pyiceberg.manage_snapshots().create_branch(
        harness.table.metadata.current_snapshot_id, "side"
    ).commit()
    done = harness.run("r1", "side")
    # As a cherry-pick leaves it, except for the files.
    commit_snapshot(
        harness.session,
        harness.table,
        AppendFiles(added=[write_file(harness.table, [1])]),
        CommitRequest(operation_id=str(uuid.uuid4())),
        summary={"source-snapshot-id": str(done.snapshot_id)},
    )
    assert list(harness.notes) == ["r0", "r1"]
    harness.run("r2", "side")
    harness.run(None)
    harness.expire_elsewhere()

    assert [harness.has("r1"), harness.has("r2")] == [True, False]


def test_runs_of_two_branches_are_noted_apart(harness: RunTable) -> None:
    harness.run("r1")
    harness.pyiceberg.manage_snapshots().create_branch(
        harness.table.metadata.current_snapshot_id, "side"
    ).commit()
    table = harness.table
    marks = {RUN_ID: "s1"}
    other = open_session(harness.warehouse, harness.clock)

    def beside() -> None:
        here = other.table("db.t")
        commit_snapshot(
            other,
            here,
            AppendFiles(added=[write_file(here, [2])]),
            CommitRequest(
                operation_id=str(uuid.uuid4()), branch="side", guard=RunGuard(marks[RUN_ID])
            ),
            summary=marks,
        )

    inject(harness.session, [after(beside)])
    harness.run("m1")
    properties = harness.table.properties

    assert table.properties[RUN_IDS] != properties[RUN_IDS]
    assert list(json.loads(properties[RUN_IDS])) == ["r1", "m1"]
    assert list(json.loads(properties[f"{RUN_IDS}.side"])) == ["r1", "s1"]


def test_writers_of_one_branch_lose_no_note(harness: RunTable) -> None:
    harness.run("r1")
    other = RunTable.__new__(RunTable)
    other.warehouse, other.clock = harness.warehouse, harness.clock
    other.session = open_session(harness.warehouse, harness.clock)
    inject(harness.session, [after(lambda: other.run("r2"))])

    harness.run("r3")

    assert list(harness.notes) == ["r1", "r2", "r3"]


def test_a_note_is_kept_for_thirty_days_after_the_expiry_was_seen(harness: RunTable) -> None:
    harness.run("monday")
    harness.run(None)
    harness.expire_elsewhere()
    harness.clock.now += 100 * DAY_MS
    assert harness.has("monday")
    harness.run(None)
    assert harness.notes["monday"][2] == harness.clock.now
    harness.clock.now += 29 * DAY_MS
    assert harness.has("monday")
    harness.clock.now += DAY_MS
    assert not harness.has("monday")
    harness.run(None)
    assert "monday" not in harness.notes


def test_an_expiry_by_lake_marks_its_time(harness: RunTable) -> None:
    harness.run("monday")
    harness.run(None)
    harness.run(None)
    harness.expire(1.5)

    assert harness.notes["monday"][2] == harness.clock.now
    assert harness.has("monday")


def test_what_earlier_versions_noted_counts_for_thirty_days(harness: RunTable) -> None:
    harness.run(None)
    with harness.pyiceberg.transaction() as changing:
        changing.set_properties({EXPIRED_RUN_IDS: json.dumps({"old": harness.clock.now})})
    harness.run(None)
    harness.run(None)
    assert harness.has("old")
    harness.expire(1.5)
    assert list(json.loads(harness.table.properties[EXPIRED_RUN_IDS])) == ["old"]

    harness.clock.now += 31 * DAY_MS
    assert not harness.has("old")
    harness.run(None)
    harness.run(None)
    harness.expire(0.5)
    assert json.loads(harness.table.properties[EXPIRED_RUN_IDS]) == {}


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]", '{"a": 1}', '{"a": ["x", 1]}'])
def test_notes_that_cannot_be_read_stop_no_commit(harness: RunTable, text: str) -> None:
    harness.run("r1")
    with harness.pyiceberg.transaction() as changing:
        changing.set_properties({RUN_IDS: text, EXPIRED_RUN_IDS: text})

    harness.run("r2")
    harness.run(None)
    harness.expire(0.5)

    assert list(harness.notes) == ["r1", "r2"]


def test_a_catalog_that_forbids_properties_takes_the_commit(harness: RunTable) -> None:
    inject(harness.session, [refused_with(ForbiddenError("no TABLE_WRITE_PROPERTIES"))])

    done = harness.run("r1")

    assert not done.already
    assert harness.has("r1")
    assert harness.notes == {}
    assert "does not allow lake to note run ids in the properties of db.t" in " ".join(
        harness.session.warnings
    )


def test_the_number_of_notes_is_bounded(harness: RunTable) -> None:
    for name in ("first", None, None):
        harness.run(name)
    harness.expire_elsewhere()
    now = harness.clock.now
    many = {f"run-{number}": [2**62 + number, 1, now] for number in range(MAX_NOTED + 500)}
    with harness.pyiceberg.transaction() as changing:
        changing.set_properties({RUN_IDS: json.dumps(many | harness.notes)})
    harness.run("last")

    assert len(harness.notes) == MAX_NOTED
    assert harness.has("last")
    assert harness.has("first")
    assert len(harness.table.properties[RUN_IDS]) < 60 * MAX_NOTED


def test_what_a_later_version_noted_of_runs_that_were_rolled_back_is_kept(
    harness: RunTable,
) -> None:
    first = harness.run("r1")
    unknown = {"a": {"b": 1}, "c": [1, "x", None, 3], "d": 5, "e": [], "f@1": [1, 1, None, "x"]}
    with harness.pyiceberg.transaction() as changing:
        changing.set_properties({FURTHER: json.dumps(unknown)})
    rolled_back(harness, "r2", first.snapshot_id)
    harness.run("r3")

    found = json.loads(harness.table.properties[FURTHER])
    (mine,) = found.keys() - unknown.keys()
    assert {key: found[key] for key in unknown} == unknown
    assert mine == f"r2@{found[mine][0]}"
    assert found[mine][1:] == [2, None, 3]


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]", "3"])
def test_further_notes_that_cannot_be_read_stop_no_commit(harness: RunTable, text: str) -> None:
    first = harness.run("r1")
    with harness.pyiceberg.transaction() as changing:
        changing.set_properties({FURTHER: text, f"{FURTHER}.gone": text})
    rolled_back(harness, "r2", first.snapshot_id)
    harness.run("r3")
    harness.expire(0.5)

    assert list(harness.notes) == ["r1", "r3"]
    assert f"{FURTHER}.gone" not in harness.table.properties


def test_the_number_of_further_notes_is_bounded(harness: RunTable) -> None:
    first = harness.run("r1")
    rolled_back(harness, "r2", first.snapshot_id)
    many = {f"r@{number}": [number, 1, None, 3] for number in range(MAX_NOTED)}
    with harness.pyiceberg.transaction() as changing:
        changing.set_properties({FURTHER: json.dumps(many)})
    harness.run("r3")

    found = json.loads(harness.table.properties[FURTHER])
    assert len(found) == MAX_NOTED // 10
    assert "r2" in {key.partition("@")[0] for key in found}


def test_a_run_that_was_rolled_back_is_forgotten_when_no_ref_can_contain_it(
    harness: RunTable,
) -> None:
    first = harness.run("r1")
    rolled_back(harness, "r2", first.snapshot_id)
    harness.run("r3")
    harness.run("r4")
    harness.expire(0.5)

    assert json.loads(harness.table.properties[FURTHER]) == {}


def test_notes_of_a_branch_that_is_gone_go(harness: RunTable) -> None:
    harness.run("r1")
    head = harness.table.metadata.current_snapshot_id
    harness.pyiceberg.manage_snapshots().create_branch(head, "side").commit()
    harness.run("r2", "side")
    harness.pyiceberg.manage_snapshots().remove_branch("side").commit()
    harness.run(None)
    assert f"{RUN_IDS}.side" in harness.table.properties

    harness.expire(0.5)

    assert f"{RUN_IDS}.side" not in harness.table.properties
    assert list(harness.notes) == ["r1"]


def test_an_expiry_without_the_right_to_change_properties_is_done(harness: RunTable) -> None:
    harness.run("r1")
    harness.run(None)
    inject(harness.session, [refused_with(ForbiddenError("no TABLE_WRITE_PROPERTIES"))])

    harness.expire(0.5)

    assert len(harness.table.metadata.snapshots) == 1
    assert harness.has("r1")


def test_a_long_run_id_is_noted_short(harness: RunTable) -> None:
    name = "x" * 5_000
    harness.run(name)
    harness.run(None)
    harness.expire_elsewhere()

    assert harness.has(name)
    assert not harness.has(name + "y")
    assert len(harness.table.properties[RUN_IDS]) < 200


# Commits, a move of main, and what removes snapshots, in the order in which they hide a run the most.
_ROUND = st.tuples(
    st.lists(st.sampled_from(["run", "tagged"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["rollback", "to the start"]), max_size=2),
    st.lists(st.sampled_from(["run", "plain", "again"]), max_size=2),
    st.lists(st.sampled_from(["expire by lake", "expire elsewhere", "lose the log"]), max_size=2),
    st.lists(st.sampled_from(["to a tag", "again"]), max_size=2),
)
_STEPS = st.lists(_ROUND, min_size=1, max_size=3).map(
    lambda rounds: [step for parts in rounds for part in parts for step in part]
)


@settings(max_examples=examples(25), deadline=None)
@given(steps=_STEPS, picks=st.randoms(use_true_random=False))
def test_a_run_that_a_commit_saw_in_the_history_is_never_loaded_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], picks: random.Random
) -> None:
    harness = RunTable(tmp_path_factory.mktemp("runs"))
    history: list[tuple[int, str | None]] = []
    tags: list[list[tuple[int, str | None]]] = []
    others = {
        "expire by lake": lambda: harness.expire(0),
        "expire elsewhere": harness.expire_elsewhere,
        "lose the log": harness.lose_log,
    }
    for number, step in enumerate(["plain", *steps]):
        harness.clock.now += 1
        changing = harness.pyiceberg.manage_snapshots() if number else None
        known = [name for chain in (history, *tags) for _, name in chain if name]
        if step in {"run", "plain", "tagged"} or (step == "again" and known):
            name = {"run": f"r{number}", "again": picks.choice(known or [""])}.get(step)
            done = harness.run(name)
            is_held = name in {name for _, name in history if name}
            # Without older metadata files, a run that may be there is not loaded again.
            assert done.already == is_held or (done.already and "lose the log" in steps)
            if not done.already:
                history.append((done.snapshot_id, name))
            if step == "tagged":
                harness.pyiceberg.manage_snapshots().create_tag(
                    done.snapshot_id, f"t{len(tags)}"
                ).commit()
                tags.append([*history])
        elif step in {"rollback", "to the start"} and len(history) > 1:
            kept = 1 if step == "to the start" else len(history) - 1
            if harness.table.metadata.snapshot_by_id(history[kept - 1][0]):
                history = history[:kept]
                changing.set_current_snapshot(history[-1][0]).commit()
        elif step == "to a tag" and tags:
            history = [*picks.choice(tags)]
            changing.set_current_snapshot(history[-1][0]).commit()
        elif step in others:
            others[step]()
        for _, name in history:
            assert name is None or harness.has(name)


@pytest.mark.parametrize(
    ("summary", "runs"),
    [
        ({RUN_ID: "a"}, ["a"]),
        (run_summary(["a"]), ["a"]),
        (run_summary(["a", 'b"', "ü"]), ["a", 'b"', "ü"]),
        ({RUN_ID: "a", RUN_IDS: '["b", 3, null, ["c"]]'}, ["a", "b"]),
        *(({RUN_ID: "a", RUN_IDS: text}, ["a"]) for text in ("", "{}", "3", "[" * 5000, '"b"')),
        ({}, []),
    ],
)
def test_the_runs_of_a_snapshot_are_read_from_its_summary_as_untrusted_text(
    summary: dict[str, str], runs: list[str]
) -> None:
    assert [run_id for run_id, _ in RUN_NOTES.marks(summary)] == runs
