"""Worlds of tests/world as others read them: `python -m soak --judged N` judges more."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from support.peers.java_peer import JavaPeer
from world.judges import judge_by_java, judge_by_pyiceberg
from world.running import run_world
from world.simulation import Config, World

STEPS = 24


@pytest.mark.java
@pytest.mark.parametrize("version", [1, 2, 3])
def test_others_read_of_a_world_what_its_model_holds(version: int, java: JavaPeer) -> None:
    seed = f"judged {version}"

    def judge(world: World) -> Counter[str]:
        return judge_by_java(world, java) + judge_by_pyiceberg(world)

    counts, _ = run_world(seed, STEPS, Config.drawn(Random(seed), version), judge)

    assert counts["read by Java"] > 3
    assert counts["read by PyIceberg"]
