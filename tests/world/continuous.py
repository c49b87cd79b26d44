"""Worlds with commands that work continuously beside all other actors."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from world.follower import changes, consumer, consumer_of_changes
from world.running import run_world
from world.simulation import Config
from world.watcher import unlocked, watcher

STEPS = 32
_COMPANIONS = (
    (changes,),
    (consumer, consumer_of_changes),
    (watcher,),
    (unlocked, changes),
)


def run_continuous(seed: str, number: int) -> Counter[str]:
    """Run a world with one of the sets of continuous commands, and return the counts.

    Args:
        seed: determines everything that is drawn.
        number: the number of the set, modulo their number.
    """
    config = replace(Config.drawn(Random(seed)), focus="history")
    counts, _ = run_world(seed, STEPS, config, companions=_COMPANIONS[number % len(_COMPANIONS)])
    assert counts["follow: done"] + counts["follow: partial"] + counts["watch: done"]
    return counts
