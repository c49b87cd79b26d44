"""A slice of the races: `python -m soak` runs them all."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from world.races import ISOLATIONS, Races, pairs, singles


def test_there_are_as_many_races_as_there_should_be() -> None:
    assert len(list(singles())) == 8320
    assert len(list(pairs())) == 216_320


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_race_leaves_what_one_order_leaves(tmp_path: Path, isolation: str, version: int) -> None:
    races = Races(tmp_path, isolation, version)
    mine = [race for race in singles() if race[0] == isolation]
    # Not a divisor of any factor: every command, phase and operation comes.
    for _, command, phase, others in islice(mine, version, None, 113):
        races.race(command, phase, others)
