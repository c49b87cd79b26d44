"""A staged run that is ended twice at once, in every two ways, or discarded while snapshots expire."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lake.core.base.outcome import Outcome
from world import foreign, staging
from world.expiring import Expiring
from world.model import Operation
from world.simulation import Config, World

# Not a divisor of how many calls there are: with the others' starts every call comes.
_APART = 6


class AtCall:
    """Lets something happen at the n-th call."""

    def __init__(self, world: World, number: int, run: staging.Run, how: str) -> None:
        self._world, self._left, self._run, self._how = world, number, run, how
        self.came = False

    def __call__(self, _kind: str, _location: str) -> None:
        self._left -= 1
        if self._left < 0 and not self.came:
            self.came = True
            staging.end_by(self._world, self._run, self._how)


@pytest.mark.parametrize("other", staging.ENDS)
@pytest.mark.parametrize("one", staging.ENDS)
def test_a_staged_run_is_ended_once(tmp_path: Path, one: str, other: str) -> None:
    world = World(tmp_path / "w", "ends", Config(version=2))
    with world.inside():
        world.make_table()
        staging.stage(world, Random("ends"))
        (run,) = world.kept["runs"]
        restore = world.save()
        number, came = (staging.ENDS.index(one) + staging.ENDS.index(other)) % _APART, True
        while came:
            restore()
            at = AtCall(world, number, run, other)
            world.watch = at
            staging.end_by(world, run, one)
            world.watch = None
            came, number = at.came, number + _APART
            world.check_all()
            staging.settle(world)
    assert number > 2 * _APART


@pytest.mark.parametrize("times", [1, 3])
def test_a_run_is_discarded_while_snapshots_expire(tmp_path: Path, times: int) -> None:
    world = World(tmp_path / "w", "discards", Config(version=2))
    with world.inside():
        world.make_table()
        staging.stage(world, Random("discards"))
        (run,) = world.kept["runs"]
        foreign.append(world, Random(1))
        restore = world.save()
        number, came = 1, times
        while came:
            restore()
            at = Expiring(world, number, times)
            world.watch = at
            operation = Operation("discard a run", lays_down=True)
            done = world.step(operation, "ingest", "--discard", run.run_id)
            world.watch = None
            assert isinstance(done, Outcome), (number, done)
            assert done.status == "done"
            assert not [name for name in world.leftovers() if "lake-withdrawal" in name]
            staging.settle(world)
            came, number = at.came, number + 1
    assert number > 5
