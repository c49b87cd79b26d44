"""`lake check`, while snapshots expire at each of its calls, reports no damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from lake.core.base.errors import CommitConflictError
from world import foreign
from world.expiring import Expiring
from world.simulation import Config, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "w", "checks", Config(version=2))
    with world.inside():
        world.make_table()
        foreign.append(world, Random(1))
        foreign.change_statistics(world, Random(1))
        yield world


@pytest.mark.parametrize("times", [1, 2])
def test_an_expiry_is_not_damage(world: World, times: int) -> None:
    restore = world.save()
    number, came = 1, times
    while came:
        restore()
        at = Expiring(world, number, times)
        world.watch = at
        world.check_by_lake()
        world.watch = None
        came, number = at.came, number + 1
    assert number > 5


def test_expiries_during_each_check_are_a_conflict(world: World) -> None:
    world.watch = Expiring(world, 1, times=9)
    done = world.no_change("check", "--files")
    world.watch = None

    assert isinstance(done, CommitConflictError)
    assert "expired during each of 3 checks" in done.message
    world.check_by_lake()
