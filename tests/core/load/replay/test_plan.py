"""A plan is of the table as it is, though it began with an older view of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.flink_fixtures import FlinkFixture
from support.tables.replay_plans import session_on

from lake.core.base.errors import NotFoundError, RefusedError
from lake.core.load.replay.model import COMMITTED_LEFTOVER, PENDING
from lake.core.load.replay.options import ReplayOptions
from lake.core.load.replay.plan import plan_replay

Flink = Callable[[str], FlinkFixture]


@pytest.fixture
def fixture(flink_lent: Flink) -> FlinkFixture:
    """Three pending checkpoints, 4 to 6, of an appending FlinkSink."""
    return flink_lent("b-append-pending")


def proven(fixture: FlinkFixture) -> ReplayOptions:
    return ReplayOptions(
        checkpoint=(f"{fixture.root}/{fixture.truth['replay']['from_checkpoint']}",)
    )


def test_what_another_replay_committed_meanwhile_is_not_missing(fixture: FlinkFixture) -> None:
    session = session_on(fixture)
    stale = session.table(fixture.table)
    CommandLine(fixture.warehouse).ok(
        "replay", fixture.table, "--checkpoint", proven(fixture).checkpoint[0]
    )

    plan = plan_replay(session, stale, proven(fixture))

    assert plan.jobs == ()
    assert {item.state for item in plan.found} == {COMMITTED_LEFTOVER}
    assert plan.table.metadata_location != stale.metadata_location


def test_a_missing_manifest_of_a_pending_checkpoint_is_refused(fixture: FlinkFixture) -> None:
    session = session_on(fixture)
    Path(fixture.truth["temp_manifests"][0]["path"]).unlink()

    with pytest.raises(RefusedError, match="missing"):
        plan_replay(session, session.table(fixture.table), proven(fixture))


def test_an_expiry_meanwhile_hides_nothing(fixture: FlinkFixture) -> None:
    session = session_on(fixture)
    stale = session.table(fixture.table)
    CommandLine(fixture.warehouse).ok(
        *("expire", fixture.table, "--older-than", "0s", "--unsafe-retention"),
        *("--retain-last", 1, "--keep-checkpoints", "0s"),
    )

    plan = plan_replay(session, stale, ReplayOptions())

    assert [item.state for item in plan.found] == [PENDING] * 3


def test_a_snapshot_that_cannot_be_read_stops_it(fixture: FlinkFixture) -> None:
    session = session_on(fixture)
    table = session.table(fixture.table)
    Path(table.metadata.snapshots[0].manifest_list).unlink()

    with pytest.raises(NotFoundError):
        plan_replay(session, table, ReplayOptions())


def test_a_plan_does_not_depend_on_the_order_in_which_files_are_listed(
    flink: Flink, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = flink("d-retract")
    session = session_on(fixture)
    table = session.table(fixture.table)
    options = ReplayOptions(job=fixture.truth["replay"]["job"], completed=6)
    expected = plan_replay(session, table, options)
    listed = table.storage.list_files
    monkeypatch.setattr(
        table.storage,
        "list_files",
        lambda folder: sorted(listed(folder), key=lambda f: f.location[::-1]),
    )

    plan = plan_replay(session, table, options)

    numbers = [item.checkpoint_id for item in plan.jobs[0].checkpoints]
    assert numbers == fixture.truth["replay"]["pending_checkpoints"]
    for one, other in zip(plan.jobs[0].checkpoints, expected.jobs[0].checkpoints, strict=True):
        assert [item.content for item in one.manifests] == [0, 1]
        assert [item.path for item in one.manifests] == [item.path for item in other.manifests]
