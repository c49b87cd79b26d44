"""The newest epoch of a stream in a branch's history, whatever is expired and to where the branch is set back."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tables.iceberg_tables import write_file
from support.tables.table_harness import TableHarness
from support.tiers import examples

from lake.core.maintain.expiration.execute import execute
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.table.snapshots.streams import STREAM_NOTES, StreamEpoch, newest_epoch
from lake.core.transaction.commit.guards import StreamGuard
from lake.core.transaction.commit.operations import AppendFiles

DAY_MS = 24 * 3_600_000
# The snapshots of a branch, each with the epochs up to it by their streams.
History = list[tuple[int, dict[str, StreamEpoch]]]


class StreamTable(TableHarness):
    """A table whose commits are a day apart."""

    def commit(self, epoch: StreamEpoch | None) -> int:
        self.clock.now += DAY_MS
        table = self.load()
        guard = StreamGuard(epoch) if epoch else None
        added = AppendFiles(added=[write_file(table, [1])])
        marks = dict(guard.summary) if guard else {}
        done = self.commit_on(table, added, summary=marks, guard=guard)
        assert not done.already
        return int(done.snapshot_id)

    def expire(self, days: float) -> None:
        moment = self.clock.now - int(days * DAY_MS)
        options = RetentionOptions(older_than=moment, unsafe_retention=True)
        execute(self.session, plan_expiration(self.session, self.load(), options))

    def set_to(self, snapshot_id: int) -> None:
        self.pyiceberg.manage_snapshots().set_current_snapshot(snapshot_id).commit()


_ROUND = st.tuples(
    st.lists(st.sampled_from(["a", "b", "plain", "tag"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["expire 0", "expire 1", "expire 2", "expire 4"]), max_size=2),
    st.lists(st.sampled_from(["to a tag", "back", "to the start"]), max_size=2),
)
_STEPS = st.lists(_ROUND, min_size=1, max_size=4).map(
    lambda rounds: [step for parts in rounds for part in parts for step in part]
)


@settings(max_examples=examples(20), deadline=None)
@example(["a", "plain", "a", "expire 1", "back"], random.Random(1))
@example(["a", "plain", "a", "expire 1", "back", "plain", "expire 0"], random.Random(1))
@example(["a", "tag", "a", "b", "a", "expire 1", "to a tag"], random.Random(1))
@example(["a", "plain", "tag", "a", "plain", "a", "expire 1", "to a tag"], random.Random(1))
@given(steps=_STEPS, picks=st.randoms(use_true_random=False))
def test_the_newest_epoch_of_a_history_is_known_after_expiries_and_rollbacks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], picks: random.Random
) -> None:
    harness = StreamTable(tmp_path_factory.mktemp("streams"))
    history: History = []
    tags: list[History] = []
    for number, step in enumerate(["plain", *steps]):
        known = dict(history[-1][1]) if history else {}
        retained: Any = harness.load().metadata.snapshot_by_id
        if step in {"a", "b", "plain"}:
            epoch = None
            if step != "plain":
                last = known[step].number if step in known else 0
                epoch = known[step] = StreamEpoch(step, last + 1, {"from": number})
            history.append((harness.commit(epoch), known))
        elif step == "tag":
            name = f"t{len(tags)}"
            harness.pyiceberg.manage_snapshots().create_tag(history[-1][0], name).commit()
            tags.append([*history])
        elif step.startswith("expire"):
            harness.expire(int(step[-1]) + 0.5)
        elif step == "to a tag" and tags:
            history = [*picks.choice(tags)]
            harness.set_to(history[-1][0])
        else:
            places = [at for at in range(1, len(history)) if retained(history[at - 1][0])]
            if places:
                history = history[: places[0] if step == "to the start" else places[-1]]
                harness.set_to(history[-1][0])
        for stream in ("a", "b"):
            found = newest_epoch(harness.load(), "main", stream)
            assert found == history[-1][1].get(stream), (number, step)
    assert len(STREAM_NOTES.all_notes(harness.load().metadata, "main")) <= 2 + 2 * (len(tags) + 1)
