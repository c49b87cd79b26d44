"""A replay leaves what Flink's own restore would have left, once, whoever else replays the same."""

from __future__ import annotations

from typing import Any

import pytest
from flink_fixtures import lent, names, shared
from replay_support import plan_of, session_on

from lake.core.outcome import Status
from lake.core.replay.execute import execute
from lake.core.table import lineage


def _pending() -> list[str]:
    found = []
    for name in names():
        with shared(name) as fixture:
            if any(item["must_replay"] for item in fixture.truth["temp_manifests"]):
                found.append(name)
    return found


# What Flink says of a commit that lake says in other words, or that depends on how manifests were merged.
_OTHERWISE = {"operation", "files"}


@pytest.mark.parametrize("name", _pending())
def test_a_replay_makes_the_snapshots_that_flink_made(name: str) -> None:
    with lent(name) as fixture:
        session = session_on(fixture)
        before = session.table(fixture.table).metadata
        plan = plan_of(session, fixture, replace_partitions=name.startswith("f"))

        outcome = execute(session, plan)

        assert outcome.status is Status.DONE
        after = session.table(fixture.table).metadata
        made = list(lineage.ancestors(after, after.current_snapshot_id))[::-1]
        made = made[len(list(lineage.ancestors(before, before.current_snapshot_id))) :]
        assert [snapshot.snapshot_id for snapshot in made] == list(outcome.snapshot_ids)
        flinks: list[dict[str, Any]] = fixture.truth["flink_restore_on_a_copy"]["new_snapshots"]
        for snapshot, flink in zip(made, flinks, strict=True):
            assert snapshot.summary is not None
            assert snapshot.summary.operation.value == flink["operation"]
            ours = snapshot.summary.additional_properties
            told = {key: value for key, value in flink.items() if key not in _OTHERWISE}
            assert {key: ours.get(key) for key in told} == told
