"""Worlds from seeds: whatever is interleaved, nothing is lost, doubled or brought back.

``LAKE_WORLD_SEED=… pytest tests/world`` runs the world of one seed alone.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from world.running import run_world
from world.simulation import Config

STEPS = 40
_GIVEN = os.environ.get("LAKE_WORLD_SEED")
# The last one left manifests of a run that another had landed.
_SEEDS = [_GIVEN] if _GIVEN else [*(f"everyday {number}" for number in range(6)), "d6 32"]


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_world_loses_a_row(seed: str) -> None:
    counts, _ = run_world(seed, STEPS)

    assert counts["steps"] == STEPS
    assert counts["snapshots"]


def test_removals_and_repairs_beside_all_others_lose_no_row() -> None:
    counts: Counter[str] = Counter()
    for number in range(4):
        seed = f"upkeep {number}"
        config = replace(
            Config.drawn(Random(f"{seed} config")), focus="upkeep", partition_by="part"
        )
        counts += run_world(seed, STEPS, config)[0]

    assert counts["steps"] == 4 * STEPS
    assert counts["clean quarantine: done"] + counts["clean delete: done"]
    assert counts["expire partitions: done"] + counts["expire partitions: partial"]


def test_a_checkpoint_that_is_deleted_while_it_is_replayed_is_not_a_defect() -> None:
    seed = "jl 6"
    config = replace(Config.drawn(Random(f"{seed} config")), focus="jobs")

    assert run_world(seed, STEPS, config)[0]["steps"] == STEPS


def test_a_seed_gives_the_same_world_again() -> None:
    assert run_world("again", 12) == run_world("again", 12)
