"""`lake check`, while snapshots expire at each of its calls, reports no damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from lake.core.errors import CommitConflictError
from world import foreign
from world.model import Expiry, Operation
from world.simulation import DAY_MS, Config, World


class Expiring:
    """Lets all older snapshots expire at the n-th call after each time that the table is loaded."""

    def __init__(self, world: World, number: int, times: int) -> None:
        self._world, self._number, self._times = world, number, times
        self._left = number
        self.came = 0
        self._is_busy = False

    def __call__(self, kind: str, _location: str) -> None:
        if self._is_busy:
            return
        self._left = self._number if kind == "load table" else self._left - 1
        if self._left == 0 and self.came < self._times:
            self.came += 1
            self._is_busy = True
            expire_others(self._world)
            self._is_busy = False


def expire_others(world: World) -> None:
    """Let no snapshot be left but a new one, which has new files."""
    world.clock.now += DAY_MS
    foreign.append(world, Random(1))
    world.step(Operation("compact"), "compact", "--rewrite-all")
    expiry = Operation("expire", may_drop=True, expires=Expiry())
    world.step(expiry, "expire", "--older-than", "0s", "--unsafe-retention")
    foreign.change_statistics(world, Random(1))


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
