"""Expiries in the middle of other commands: all that they have planned to read is gone."""

from __future__ import annotations

from random import Random

from world import foreign
from world.model import Expiry, Operation
from world.simulation import DAY_MS, World


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
